//! What expressions mean.
//!
//! Numbers are IEEE 754 doubles and comparisons are exact. A result that is
//! not finite is a failure at the operator that made it. Pure and bounded: each
//! node is visited at most once.

use super::{Binary, Expression, Function, Kind, Node, Unary, Value};
use crate::problem::Location;

/// Why an expression has no value in a cell.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::matrix) struct Failure {
    /// The operator, function or name that could not do it.
    pub(in crate::matrix) location: Location,
    /// What it could not do, without the cell.
    pub(in crate::matrix) message: String,
}

impl Expression {
    /// The value for a cell.
    ///
    /// `values` are the cell's, by slot; `tier_max` the tier's, by slot, `None`
    /// where the name has no number in some cell of the tier.
    pub(in crate::matrix) fn evaluate(
        &self,
        values: &[Value],
        tier_max: &[Option<f64>],
    ) -> Result<Value, Failure> {
        self.root.value(values, tier_max)
    }
}

impl Node {
    fn fail(&self, message: impl Into<String>) -> Failure {
        Failure {
            location: self.at.clone(),
            message: message.into(),
        }
    }

    fn value(&self, values: &[Value], tier_max: &[Option<f64>]) -> Result<Value, Failure> {
        match &self.kind {
            Kind::Constant(value) => Ok(value.clone()),
            Kind::Name(slot) => Ok(values[*slot].clone()),
            Kind::TierMax(slot) => tier_max[*slot]
                .map(Value::Number)
                .ok_or_else(|| self.fail("`tier_max` needs a name that is a number in every cell")),
            Kind::Unary(operator, argument) => {
                match (operator, argument.value(values, tier_max)?) {
                    (Unary::Minus, Value::Number(number)) => Ok(Value::Number(-number)),
                    (Unary::Plus, value @ Value::Number(_)) => Ok(value),
                    (Unary::Not, Value::Boolean(truth)) => Ok(Value::Boolean(!truth)),
                    (Unary::Not, other) => {
                        Err(self.fail(format!("`!` needs true or false, not {other}")))
                    }
                    (_, other) => Err(self.fail(format!("a sign needs a number, not {other}"))),
                }
            }
            Kind::Binary(operator, sides) => {
                let left = sides.0.value(values, tier_max)?;
                let right = sides.1.value(values, tier_max)?;
                self.binary(*operator, &left, &right)
            }
            Kind::All(parts) => {
                for part in parts {
                    if !part.truth(values, tier_max, "&&")? {
                        return Ok(Value::Boolean(false));
                    }
                }
                Ok(Value::Boolean(true))
            }
            Kind::Any(parts) => {
                for part in parts {
                    if part.truth(values, tier_max, "||")? {
                        return Ok(Value::Boolean(true));
                    }
                }
                Ok(Value::Boolean(false))
            }
            Kind::If(parts) => {
                let [condition, yes, no] = &**parts;
                if condition.truth(values, tier_max, "if")? {
                    yes.value(values, tier_max)
                } else {
                    no.value(values, tier_max)
                }
            }
            Kind::Call(function, arguments) => self.call(*function, arguments, values, tier_max),
        }
    }

    fn truth(
        &self,
        values: &[Value],
        tier_max: &[Option<f64>],
        asker: &str,
    ) -> Result<bool, Failure> {
        match self.value(values, tier_max)? {
            Value::Boolean(truth) => Ok(truth),
            other => Err(self.fail(format!("`{asker}` needs true or false, not {other}"))),
        }
    }

    fn finite(&self, number: f64, what: &str) -> Result<Value, Failure> {
        if number.is_finite() {
            Ok(Value::Number(number))
        } else {
            Err(self.fail(format!("`{what}` gives {number}, which is no knob's value")))
        }
    }

    fn binary(&self, operator: Binary, left: &Value, right: &Value) -> Result<Value, Failure> {
        let sign = sign(operator);
        match operator {
            Binary::Equal | Binary::NotEqual => {
                let is_equal = match (left, right) {
                    (Value::Number(a), Value::Number(b)) => {
                        // Both are finite, so exact order decides equality.
                        a.partial_cmp(b) == Some(std::cmp::Ordering::Equal)
                    }
                    (Value::Boolean(a), Value::Boolean(b)) => a == b,
                    (Value::Text(a), Value::Text(b)) => a == b,
                    _ => return Err(self.mixed(sign, left, right)),
                };
                Ok(Value::Boolean(is_equal == (operator == Binary::Equal)))
            }
            Binary::Less | Binary::LessOrEqual | Binary::Greater | Binary::GreaterOrEqual => {
                let order = match (left, right) {
                    (Value::Number(a), Value::Number(b)) => {
                        a.partial_cmp(b).expect("no operator lets a non-number out")
                    }
                    (Value::Text(a), Value::Text(b)) => a.cmp(b),
                    _ => return Err(self.mixed(sign, left, right)),
                };
                Ok(Value::Boolean(match operator {
                    Binary::Less => order.is_lt(),
                    Binary::LessOrEqual => order.is_le(),
                    Binary::Greater => order.is_gt(),
                    _ => order.is_ge(),
                }))
            }
            Binary::Add
            | Binary::Subtract
            | Binary::Multiply
            | Binary::Divide
            | Binary::Remainder
            | Binary::Power => {
                let (Value::Number(a), Value::Number(b)) = (left, right) else {
                    return Err(self.fail(format!(
                        "`{sign}` needs two numbers, not {left} and {right}"
                    )));
                };
                let divides = matches!(operator, Binary::Divide | Binary::Remainder);
                if divides && *b == 0.0 {
                    return Err(self.fail(format!("`{sign}` divides {a} by zero")));
                }
                let result = match operator {
                    Binary::Add => a + b,
                    Binary::Subtract => a - b,
                    Binary::Multiply => a * b,
                    Binary::Divide => a / b,
                    Binary::Remainder => a % b,
                    _ => a.powf(*b),
                };
                self.finite(result, sign)
            }
        }
    }

    fn mixed(&self, sign: &str, left: &Value, right: &Value) -> Failure {
        self.fail(format!("`{sign}` cannot compare {left} with {right}"))
    }

    fn call(
        &self,
        function: Function,
        arguments: &[Node],
        values: &[Value],
        tier_max: &[Option<f64>],
    ) -> Result<Value, Failure> {
        let mut result: Option<f64> = None;
        for argument in arguments {
            let number = match argument.value(values, tier_max)? {
                Value::Number(number) => number,
                other => {
                    return Err(
                        argument.fail(format!("`{}` needs a number, not {other}", function.name()))
                    );
                }
            };
            result = Some(match (function, result) {
                (Function::Round, _) => number.round_ties_even(),
                // Half goes up, towards plus infinity, as in spreadsheets' ROUND for
                // positive numbers. `floor(x + 0.5)` would lift 0.49999999999999994.
                (Function::RoundHalfUp, _) => {
                    let below = number.floor();
                    if number - below >= 0.5 {
                        below + 1.0
                    } else {
                        below
                    }
                }
                (Function::Ceil, _) => number.ceil(),
                (Function::Floor, _) => number.floor(),
                (Function::Abs, _) => number.abs(),
                (_, None) => number,
                (Function::Min, Some(least)) => least.min(number),
                (Function::Max, Some(most)) => most.max(number),
            });
        }
        self.finite(
            result.expect("every function takes at least one value"),
            function.name(),
        )
    }
}

fn sign(operator: Binary) -> &'static str {
    match operator {
        Binary::Add => "+",
        Binary::Subtract => "-",
        Binary::Multiply => "*",
        Binary::Divide => "/",
        Binary::Remainder => "%",
        Binary::Power => "**",
        Binary::Equal => "==",
        Binary::NotEqual => "!=",
        Binary::Less => "<",
        Binary::LessOrEqual => "<=",
        Binary::Greater => ">",
        Binary::GreaterOrEqual => ">=",
    }
}
