//! Where an axis has its ticks, and how figures are written on charts. Pure.

/// A measured axis: linear from zero, or logarithmic and then marked so.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Scale {
    /// Value at the low end.
    pub(super) low: f64,
    /// Value at the high end.
    pub(super) high: f64,
    /// Whether equal ratios are equal lengths.
    pub(super) is_log: bool,
    /// Values that get a line and a label.
    pub(super) ticks: Vec<f64>,
}

/// A linear axis hides the small end when the values span more than this.
///
/// At 200 a value at the low end of a 400 px axis is 2 px above zero.
const MOST_LINEAR_SPAN: f64 = 200.0;

impl Scale {
    /// The scale for these values; infinite ones and zeros do not count for its span.
    ///
    /// Without any value it runs from 0 to 1 and has no ticks.
    pub(super) fn of(values: impl IntoIterator<Item = f64>) -> Self {
        let finite: Vec<f64> = values.into_iter().filter(|v| v.is_finite()).collect();
        let largest = finite.iter().copied().fold(0.0, f64::max);
        let positive = finite.iter().copied().filter(|v| *v > 0.0);
        let smallest = positive.fold(f64::INFINITY, f64::min);
        let has_zero = finite.iter().any(|v| *v <= 0.0);
        if finite.is_empty() {
            return Self {
                low: 0.0,
                high: 1.0,
                is_log: false,
                ticks: Vec::new(),
            };
        }
        // A zero has no place on a logarithmic axis.
        if !has_zero && largest / smallest > MOST_LINEAR_SPAN {
            Self::logarithmic(smallest, largest)
        } else {
            Self::linear(if largest > 0.0 { largest } else { 1.0 })
        }
    }

    fn linear(largest: f64) -> Self {
        let step = step_for(largest * 1.04 / 6.0);
        let n = (largest * 1.04 / step).ceil();
        Self {
            low: 0.0,
            high: n * step,
            is_log: false,
            ticks: (0..=n as usize).map(|k| k as f64 * step).collect(),
        }
    }

    fn logarithmic(smallest: f64, largest: f64) -> Self {
        let (low, high) = (
            (smallest * 0.8).log10().floor() as i32,
            (largest * 1.2).log10().ceil() as i32,
        );
        // Up to four decades have 1-2-5 ticks, more have the decades alone.
        let parts: &[f64] = if high - low <= 3 {
            &[1.0, 2.0, 5.0]
        } else {
            &[1.0]
        };
        let every = ((high - low) as usize).div_ceil(9).max(1);
        let ticks = (low..=high)
            .step_by(every)
            .flat_map(|decade| parts.iter().map(move |part| part * 10_f64.powi(decade)))
            .filter(|tick| *tick <= 10_f64.powi(high) * 1.000_001)
            .collect();
        Self {
            low: 10_f64.powi(low),
            high: 10_f64.powi(high),
            is_log: true,
            ticks,
        }
    }

    /// Where a value lies: 0 at the low end, 1 at the high end.
    pub(super) fn share(&self, value: f64) -> f64 {
        if self.is_log {
            (value.max(self.low) / self.low).ln() / (self.high / self.low).ln()
        } else {
            (value - self.low) / (self.high - self.low)
        }
    }
}

/// The next larger of 1, 2, 2.5 and 5 times a power of ten.
pub(super) fn step_for(at_least: f64) -> f64 {
    let power = 10_f64.powf(at_least.log10().floor());
    [1.0, 2.0, 2.5, 5.0, 10.0]
        .into_iter()
        .map(|part| part * power)
        .find(|step| *step >= at_least * 0.999_999)
        .unwrap_or(10.0 * power)
}

/// A figure with three digits, or all before the point: `5,684`, `46.1`, `27.0`, `0.0520`, `inf`.
pub(super) fn figure(value: f64) -> String {
    if value.is_infinite() {
        return "inf".to_owned();
    }
    let size = value.abs();
    let decimals = if size >= 100.0 || size == 0.0 {
        0
    } else if size >= 10.0 {
        1
    } else if size >= 1.0 {
        2
    } else {
        // Three significant digits below one.
        2 + (-size.log10().floor()).max(0.0) as usize
    };
    grouped(&format!("{value:.decimals$}"))
}

/// A tick's label: only the digits it needs.
pub(super) fn tick_label(value: f64) -> String {
    let text = crate::results::significant(value, 6);
    grouped(&text)
}

fn grouped(text: &str) -> String {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let (sign, digits) = whole
        .strip_prefix('-')
        .map_or(("", whole), |digits| ("-", digits));
    let mut out = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    if fraction.is_empty() {
        format!("{sign}{out}")
    } else {
        format!("{sign}{out}.{fraction}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_read_well_from_tiny_to_huge() {
        for (value, text) in [
            (0.0, "0"),
            (0.2, "0.200"),
            (0.05, "0.0500"),
            (0.051_234, "0.0512"),
            (6.02, "6.02"),
            (45.8, "45.8"),
            (27.0, "27.0"),
            (1423.86, "1,424"),
            (30_000.0, "30,000"),
            (250_123.4, "250,123"),
            (1_234_567.0, "1,234,567"),
            (f64::INFINITY, "inf"),
        ] {
            assert_eq!(figure(value), text);
        }
        assert_eq!(tick_label(0.000_05), "0.00005");
        assert_eq!(tick_label(2500.0), "2,500");
    }

    #[test]
    fn a_scale_starts_at_zero_holds_every_value_and_has_few_ticks() {
        for largest in [0.05, 0.2, 1.0, 7.3, 99.0, 1423.86, 250_000.0, 3e9] {
            let scale = Scale::of([largest, largest / 2.0]);
            assert!(!scale.is_log && scale.low == 0.0, "{largest}");
            assert!(
                scale.high >= largest && scale.high <= largest * 1.6,
                "{scale:?}"
            );
            assert!((4..=9).contains(&scale.ticks.len()), "{scale:?}");
        }
    }

    #[test]
    fn a_wide_span_is_logarithmic_and_a_zero_is_not() {
        let scale = Scale::of([0.05, 30_000.0, f64::INFINITY]);
        assert!(scale.is_log);
        assert!(scale.share(0.05) >= 0.0 && scale.share(30_000.0) <= 1.0);
        assert!(!Scale::of([0.0, 30_000.0, 0.05]).is_log);
        assert!(Scale::of([]).ticks.is_empty());
        assert!((Scale::of([0.0]).high - 1.2).abs() < 1e-9);
    }
}
