//! What makes a number usable as a load.
//!
//! One rule for numbers in the file and for results of expressions.

use super::sweep::Arrivals;
use crate::units::format_number;

/// Most virtual users.
///
/// Each has a connection of its own, and one host has fewer than 64,512 ports
/// (1,024 to 65,535) towards one address.
const MAX_USERS: f64 = 60_000.0;

/// Most requests a second; a thousand times what one core can send.
const MAX_RATE_RPS: f64 = 100_000_000.0;

/// Most requests a second with Poisson arrivals, each of which is drawn.
const MAX_POISSON_RPS: f64 = 1_000_000.0;

/// Virtual users from a number, rounded half to even.
///
/// **Errors**: says what the number was.
pub(super) fn users(number: f64) -> Result<u32, String> {
    let rounded = number.round_ties_even();
    if (1.0..=MAX_USERS).contains(&rounded) {
        Ok(rounded as u32)
    } else {
        Err(format!(
            "`users` is {}, which is no number of virtual users (allowed: 1 to {MAX_USERS} after rounding)",
            format_number(number)
        ))
    }
}

/// Requests a second from a number.
///
/// **Errors**: says what the number was.
pub(super) fn rate_rps(number: f64, arrivals: Arrivals) -> Result<f64, String> {
    let (most, kind) = match arrivals {
        Arrivals::Uniform => (MAX_RATE_RPS, ""),
        Arrivals::Poisson => (MAX_POISSON_RPS, " with Poisson arrivals"),
    };
    if number > 0.0 && number <= most {
        Ok(number)
    } else {
        Err(format!(
            "`requests_per_second` is {} (allowed{kind}: above 0, up to {most})",
            format_number(number)
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_of_three_hundred_digits_is_named_shortly() {
        assert!(users(1e-300).unwrap_err().contains("is 1e-300,"));
        assert!(
            rate_rps(1e300, Arrivals::Uniform)
                .unwrap_err()
                .contains("is 1e300 ")
        );
    }

    #[test]
    fn users_round_half_to_even_and_are_never_none() {
        assert_eq!(users(1.0), Ok(1));
        assert_eq!(users(2.5), Ok(2));
        assert_eq!(users(3.5), Ok(4));
        assert_eq!(users(0.6), Ok(1));
        for number in [0.5, 0.0, -4.0, 60_001.0, f64::NAN, f64::INFINITY] {
            let message = users(number).unwrap_err();
            assert!(message.contains(&number.to_string()), "{message}");
        }
    }

    #[test]
    fn a_rate_is_finite_and_above_zero() {
        assert_eq!(rate_rps(0.25, Arrivals::Uniform), Ok(0.25));
        assert_eq!(rate_rps(2e6, Arrivals::Uniform), Ok(2e6));
        let message = rate_rps(2e6, Arrivals::Poisson).unwrap_err();
        assert!(message.contains("Poisson"), "{message}");
        for number in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert!(rate_rps(number, Arrivals::Uniform).is_err(), "{number}");
        }
    }
}
