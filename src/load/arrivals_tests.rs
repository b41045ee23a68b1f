use super::*;

fn dues(sequence: &mut ArrivalSequence, n: usize) -> Vec<Duration> {
    (0..n)
        .map(|_| {
            let due = sequence.due();
            sequence.advance();
            due
        })
        .collect()
}

fn poisson(rate: f64, seed: u64, index: usize, n_threads: usize) -> ArrivalSequence {
    ArrivalSequence::new(
        Arrivals::Poisson,
        Rate::constant(rate),
        seed,
        index,
        n_threads,
    )
}

/// What `distance_from_exponential` of a Poisson process exceeds in 1 of 1,000 runs.
/// **Source**: the limit distribution of Kolmogorov, 1933; its 5 % point is 1.36.
pub(in crate::load) const ONE_IN_1_000: f64 = 1.95;

/// Largest distance between the gaps' distribution and 1 - e^(-rate x), times the
/// root of their number.
pub(in crate::load) fn distance_from_exponential(gaps: &[f64], rate: f64) -> f64 {
    let mut gaps = gaps.to_vec();
    gaps.sort_by(f64::total_cmp);
    let n = gaps.len() as f64;
    let largest = gaps.iter().enumerate().map(|(index, gap)| {
        let expected = 1.0 - (-rate * gap).exp();
        let below = (expected - index as f64 / n).abs();
        let above = ((index + 1) as f64 / n - expected).abs();
        below.max(above)
    });
    largest.fold(0.0, f64::max) * n.sqrt()
}

pub(in crate::load) fn gaps_s(dues: &[Duration]) -> Vec<f64> {
    dues.windows(2)
        .map(|pair| pair[1].saturating_sub(pair[0]).as_secs_f64())
        .collect()
}

#[test]
fn gaps_of_a_poisson_run_are_exponential_and_those_of_an_even_one_are_not() {
    for seed in 1..=8 {
        let dues_s = dues(&mut poisson(250.0, seed, 0, 1), 20_001);
        let distance = distance_from_exponential(&gaps_s(&dues_s), 250.0);
        assert!(distance < ONE_IN_1_000, "seed {seed}: {distance}");
        // The test has teeth: a rate that is 5 % off is found.
        let distance = distance_from_exponential(&gaps_s(&dues_s), 262.5);
        assert!(distance > 1.36, "seed {seed}: {distance}");
    }
    let mut even = ArrivalSequence::new(Arrivals::Uniform, Rate::constant(250.0), 1, 0, 1);
    let distance = distance_from_exponential(&gaps_s(&dues(&mut even, 1_001)), 250.0);
    assert!(distance > 10.0, "{distance}");
}

#[test]
fn neighbouring_gaps_have_nothing_to_do_with_each_other() {
    let gaps = gaps_s(&dues(&mut poisson(1.0, 3, 0, 1), 20_001));
    let products = gaps
        .windows(2)
        .map(|pair| (pair[0] - 1.0) * (pair[1] - 1.0));
    let covariance = products.sum::<f64>() / (gaps.len() - 1) as f64;
    // Its standard error is 1 / root of 20,000.
    assert!(covariance.abs() < 4.0 / 20_000_f64.sqrt(), "{covariance}");
}

#[test]
fn the_sequence_is_the_same_whatever_the_number_of_threads() {
    let n = 840;
    let of_one = dues(&mut poisson(900.0, 7, 0, 1), n);
    for n_threads in [2, 3, 8] {
        let mut all = vec![Duration::ZERO; n];
        for index in 0..n_threads {
            let mut share = poisson(900.0, 7, index, n_threads);
            for place in (index..n).step_by(n_threads) {
                assert_eq!(share.number(), place as u64);
                all[place] = share.due();
                share.advance();
            }
        }
        assert_eq!(all, of_one, "{n_threads} threads");
    }
    assert_ne!(dues(&mut poisson(900.0, 8, 0, 1), n), of_one);
}

#[test]
fn a_ramp_turns_positions_into_times_and_back() {
    for (from, to, over_s) in [
        (0.0, 100.0, 10),
        (50.0, 400.0, 3),
        (400.0, 50.0, 3),
        (1e6, 1e-6, 100),
        (20.0, 20.0, 5),
    ] {
        let rate = Rate::ramp(from, to, Duration::from_secs(over_s));
        let end_s = over_s as f64;
        let expected = f64::midpoint(from, to) * end_s;
        assert!((rate.position_at(end_s) / expected - 1.0).abs() < 1e-9);
        for part in 1..=60 {
            let seconds = end_s * 1.5 * f64::from(part) / 60.0;
            let again = rate.seconds_at(rate.position_at(seconds));
            assert!(
                (again - seconds).abs() < 1e-3 * seconds,
                "{from} to {to}: {seconds} became {again}"
            );
        }
        assert!(rate.seconds_at(0.0).abs() < f64::EPSILON);
    }
}

#[test]
fn arrivals_on_a_ramp_come_as_often_as_the_rate_says() {
    // From 0 to 200/s in 10 s: 1,000 arrivals, a quarter of them in the first half.
    let rate = Rate::ramp(0.0, 200.0, Duration::from_secs(10));
    for arrivals in [Arrivals::Uniform, Arrivals::Poisson] {
        let mut sequence = ArrivalSequence::new(arrivals, rate, 5, 0, 1);
        let first = sequence.skip_to(Duration::from_secs(5));
        let second = sequence.skip_to(Duration::from_secs(10));
        let then = sequence.skip_to(Duration::from_secs(20));
        let slack = match arrivals {
            Arrivals::Uniform => 1.0,
            // Four standard deviations.
            Arrivals::Poisson => 4.0,
        };
        for (counted, expected) in [(first, 250.0), (second, 750.0), (then, 2_000.0_f64)] {
            let gap = (counted as f64 - expected).abs();
            assert!(
                gap <= slack * expected.sqrt(),
                "{arrivals:?}: {counted} of {expected}"
            );
        }
    }
}

#[test]
fn what_is_passed_over_is_what_walking_would_have_counted() {
    let ramp = Rate::ramp(100.0, 9_000.0, Duration::from_secs(2));
    for arrivals in [Arrivals::Uniform, Arrivals::Poisson] {
        for (rate, n_threads, index) in [
            (Rate::constant(100_000.0), 2, 1),
            (Rate::constant(777.7), 3, 2),
            (Rate::constant(3.0), 1, 0),
            (Rate::constant(0.4), 2, 0),
            (ramp, 3, 1),
        ] {
            let moment = Duration::from_millis(2_500);
            let fresh = || ArrivalSequence::new(arrivals, rate, 1, index, n_threads);
            let (mut walked, mut skipped) = (fresh(), fresh());
            let mut n = 0;
            while walked.due() < moment {
                walked.advance();
                n += 1;
            }
            assert_eq!(skipped.skip_to(moment), n, "{arrivals:?} {rate:?}");
            assert_eq!(skipped.number(), walked.number());
            assert_eq!(skipped.due(), walked.due());
            assert_eq!(skipped.skip_to(moment), 0);
        }
    }
}
