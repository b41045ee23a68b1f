//! The generator's self-test: run once, written down, and what it refuses.

use serde_json::{Value, json};

use super::error::AppError;
use crate::cpus::CpuSet;
use crate::load::{LoadModel, PhasePlan, SelfTest, self_test};
use crate::report::{Check, rate};

/// Measures what a load core can do, on the generator's CPUs.
pub(super) async fn test_generator(cpus: Option<&CpuSet>) -> Result<Option<SelfTest>, AppError> {
    self_test(cpus.cloned())
        .await
        .map_err(AppError::environment)
}

/// Refuses open loops that ask for more than half of what the generator can do.
///
/// Where the self-test could not tell, there is nothing to refuse by: the load goes on and
/// the words of a warning come back, where there is an open loop to warn of.
///
/// **Units**: `n_threads` load threads, each with a core where there are as many.
pub(super) fn refuse_too_fast<'a>(
    tested: Option<&SelfTest>,
    n_threads: usize,
    cpus: Option<&CpuSet>,
    phases: impl IntoIterator<Item = &'a PhasePlan>,
) -> Result<Option<String>, AppError> {
    let n_host = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let n_cores = n_threads.min(cpus.map_or(n_host, CpuSet::len)).max(1);
    let asked = |phase: &'a PhasePlan| {
        let own_rps = match phase.model {
            LoadModel::Open {
                requests_per_second,
                ..
            } => requests_per_second.max(phase.ramp_from.unwrap_or(0.0)),
            LoadModel::Closed { .. } | LoadModel::Script { .. } => 0.0,
        };
        let beside = phase.beside.iter().map(|beside| beside.requests_per_second);
        Some((own_rps + beside.sum::<f64>(), phase))
    };
    let highest = phases
        .into_iter()
        .filter_map(asked)
        .max_by(|(one, _), (other, _)| one.total_cmp(other));
    let Some((asked_rps, phase)) = highest.filter(|(asked_rps, _)| *asked_rps > 0.0) else {
        return Ok(None);
    };
    let Some(test) = tested else {
        return Ok(Some(format!(
            "the generator's self-test could send too little to tell what it can do: whether {} \
             requests/s of phase `{}` can be measured honestly here is not known; the host is busy, \
             and `nightsweep doctor` tests again",
            rate(asked_rps),
            phase.name
        )));
    };
    let most_rps = test.most_rps(n_cores);
    if asked_rps > most_rps {
        return Err(AppError::input(anyhow::anyhow!(
            "phase `{}` asks for {} requests/s, and at most {} can be measured honestly here: \
             a load core of this host sends {} a second ({:.1} us of CPU each, by the \
             generator's self-test), the load has {n_cores} of them, and above half of what they \
             can do the generator's own waits become part of the latency",
            phase.name,
            rate(asked_rps),
            rate(most_rps),
            rate(test.core_rps()),
            test.cpu_us_per_request(),
        ))
        .hint("lower the rate, or give the load more threads and CPUs of its own (`threads` in [load] with `reserve_cpus` in [host], or --threads)"));
    }
    Ok(None)
}

/// The self-test in run.json.
pub(super) fn self_test_json(test: Option<&SelfTest>) -> Value {
    match test {
        Some(test) => json!({
            "requests": test.requests,
            "window_s": test.length.as_secs_f64(),
            "cpu_s": test.cpu.as_secs_f64(),
            "cpu_us_per_request": test.cpu_us_per_request(),
            "core_rps": test.core_rps(),
            "reached_rps": test.reached_rps(),
        }),
        None => Value::Null,
    }
}

/// The self-test in `doctor`.
pub(super) fn check(tested: &Result<Option<SelfTest>, AppError>) -> Check {
    const NAME: &str = "generator";
    const BUSY: &str = "`top` shows who is at work; wait for it or stop it";
    match tested {
        Ok(Some(test)) => Check::ok(
            NAME,
            format!(
                "a load core sends {} requests/s ({:.1} us of CPU each); open loops may ask for {} per load thread",
                rate(test.core_rps()),
                test.cpu_us_per_request(),
                rate(test.most_rps(1)),
            ),
        ),
        Ok(None) => Check::warn(
            NAME,
            "too little could be sent to tell what it can do",
            BUSY,
        ),
        Err(error) => Check::warn(NAME, error.text(), BUSY),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::load::Arrivals;

    const TEST: SelfTest = SelfTest {
        requests: 6_000,
        cpu: Duration::from_millis(150),
        length: Duration::from_millis(300),
    };

    fn phase(name: &str, requests_per_second: f64, ramp_from: Option<f64>) -> PhasePlan {
        PhasePlan {
            name: name.to_owned(),
            window: ramp_from.is_none(),
            model: LoadModel::Open {
                requests_per_second,
                arrivals: Arrivals::Uniform,
                max_in_flight: 10,
            },
            ramp_from,
            duration: Duration::from_secs(1),
            abort_on: Vec::new(),
            beside: Vec::new(),
            held: false,
        }
    }

    #[test]
    fn a_rate_above_half_of_what_the_cores_can_do_is_refused() {
        let one: CpuSet = "0".parse().unwrap();
        let refused = |n_threads, phases: &[PhasePlan]| {
            refuse_too_fast(Some(&TEST), n_threads, Some(&one), phases)
                .err()
                .map(|error| error.text())
        };
        assert_eq!(refused(1, &[phase("a", 20_000.0, None)]), None);
        // A second thread has no core of its own here.
        let text = refused(2, &[phase("a", 500.0, None), phase("b", 20_001.0, None)]).unwrap();
        assert_eq!(
            text,
            "error: phase `b` asks for 20,001 requests/s, and at most 20,000 can be measured honestly here: \
             a load core of this host sends 40,000 a second (25.0 us of CPU each, by the generator's \
             self-test), the load has 1 of them, and above half of what they can do the generator's own \
             waits become part of the latency\n  hint: lower the rate, or give the load more threads and \
             CPUs of its own (`threads` in [load] with `reserve_cpus` in [host], or --threads)"
        );
        // A ramp that comes down is as fast at its beginning.
        let text = refused(1, &[phase("a", 10.0, Some(30_000.0))]).unwrap();
        assert!(text.contains("asks for 30,000"), "{text}");
        let closed = PhasePlan {
            model: LoadModel::Closed { users: 60_000 },
            ..phase("c", 1.0, None)
        };
        assert_eq!(refused(1, &[closed]), None);
    }

    #[test]
    fn a_self_test_that_cannot_tell_refuses_nothing_and_warns_of_open_loops() {
        let warned = |phases: &[PhasePlan]| refuse_too_fast(None, 1, None, phases).unwrap();
        let words = warned(&[phase("a", 500.0, None), phase("b", 1e9, None)]).unwrap();
        assert!(
            words.contains("1,000,000,000 requests/s of phase `b`"),
            "{words}"
        );
        let closed = PhasePlan {
            model: LoadModel::Closed { users: 10 },
            ..phase("c", 1.0, None)
        };
        assert_eq!(warned(&[closed]), None);
        let told = refuse_too_fast(Some(&TEST), 1, None, &[phase("a", 500.0, None)]);
        assert_eq!(told.unwrap(), None);
    }

    #[test]
    fn doctor_tells_what_a_core_can_do() {
        let check = |tested| serde_json::to_value(check(&tested)).unwrap();
        let told = check(Ok(Some(TEST)));
        assert_eq!(
            told["words"],
            "a load core sends 40,000 requests/s (25.0 us of CPU each); open loops may ask for 20,000 per load thread"
        );
        assert_eq!(check(Ok(None))["state"], "warn");
        let failed = AppError::environment(anyhow::anyhow!("no socket"));
        assert_eq!(check(Err(failed))["words"], "error: no socket");
    }
}
