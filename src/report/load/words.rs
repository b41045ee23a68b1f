//! Verdicts, loads and times in words.

use super::held::HeldLoad;
use crate::load::{Arrivals, LoadModel};
use crate::measure::{Flag, Reason};
use crate::report::table::{count, rate};

/// A load: `100 virtual users`, `200 requests/s (Poisson arrivals)`.
pub(super) fn load(model: LoadModel) -> String {
    match model {
        LoadModel::Closed { users: 1 } => "1 virtual user".to_owned(),
        LoadModel::Closed { users } => format!("{} virtual users", count(u64::from(users))),
        LoadModel::Open {
            requests_per_second,
            arrivals,
            ..
        } => {
            let arrivals = match arrivals {
                Arrivals::Uniform => "",
                Arrivals::Poisson => " (Poisson arrivals)",
            };
            format!("{} requests/s{arrivals}", rate(requests_per_second))
        }
        LoadModel::Script { .. } => "load of the k6 script".to_owned(),
    }
}

/// Why a window is not valid.
pub(super) fn reason(reason: Reason) -> &'static str {
    match reason {
        Reason::NoSuccess => "nothing succeeded",
        Reason::GeneratorSaturated => {
            "the generator itself was late or out of CPU: its waits are in the figures; lower the rate, or raise --threads"
        }
        Reason::LittlesLaw => {
            "the time recorded does not add up to the journeys under way: the generator was held up"
        }
    }
}

/// What a reader of a window must know.
pub(super) fn flag(flag: Flag, held: &HeldLoad) -> String {
    match flag {
        Flag::Overloaded => {
            "the service did not carry the rate: some requests were late, failed or never left"
                .to_owned()
        }
        Flag::Errors => "more than 1 % of the requests failed".to_owned(),
        Flag::TooFew if held.is_open() => format!(
            "{} successes leave fewer than 100 beyond the p99, so that chance moves it",
            count(held.summary.total.counts.successes)
        ),
        Flag::TooFew => {
            "under 20 s or under 2,000 successes: one pause of the service decides the figure"
                .to_owned()
        }
        Flag::GeneratorBound => {
            "the generator used nearly all of its cores, or had to wait for them: the service may be able to do more; give it cores that nobody else uses, and more --threads if it has them"
                .to_owned()
        }
        Flag::Stalled => {
            "the service stood still for whole seconds, or never answered half of the users"
                .to_owned()
        }
    }
}

/// A latency in milliseconds, to a microsecond below one of them.
pub(super) fn fine_ms(value: Option<f64>) -> String {
    match value {
        None => "–".to_owned(),
        Some(value) if value.is_infinite() => "inf".to_owned(),
        Some(value) if value < 0.9995 => format!("{value:.3}"),
        Some(value) => rate(value),
    }
}

/// A bound of a bucket, in the unit that needs no more than three digits.
pub(super) fn bound(ns: u64) -> String {
    let (value, unit) = match ns {
        ..1_000_000 => (ns as f64 / 1e3, "µs"),
        1_000_000..1_000_000_000 => (ns as f64 / 1e6, "ms"),
        _ => (ns as f64 / 1e9, "s"),
    };
    // Bounds are round: no digit is lost.
    format!("{value} {unit}")
}

/// A share: `45.2 %`, `0.01 %`; one that is not nothing never reads as nothing.
pub(super) fn share(part: u64, whole: u64) -> String {
    let percent = 100.0 * part as f64 / (whole as f64).max(1.0);
    if part == 0 {
        "0 %".to_owned()
    } else if percent < 0.01 {
        "<0.01 %".to_owned()
    } else if percent < 1.0 {
        format!("{percent:.2} %")
    } else {
        format!("{percent:.1} %")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_shares_keep_what_matters() {
        let times = [
            Some(0.0562),
            Some(0.9997),
            Some(12.34),
            Some(f64::INFINITY),
            None,
        ];
        assert_eq!(times.map(fine_ms), ["0.056", "1.00", "12.3", "inf", "–"]);
        let bounds = [1_120, 56_000, 3_150_000, 900_000_000_000];
        assert_eq!(bounds.map(bound), ["1.12 µs", "56 µs", "3.15 ms", "900 s"]);
        assert_eq!(share(0, 0), "0 %");
        assert_eq!(share(1, 1_000_000), "<0.01 %");
        assert_eq!(share(999, 1_000), "99.9 %");
    }
}
