//! Which journey comes next: draws from the seed by the weights of the file.
//!
//! The weights are shares of the journeys (`weight_of = "journeys"`, the default): the
//! mix of requests is then the same in every cell, however long each journey takes, so
//! that their throughputs can be compared. Journey i of an open phase is drawn from seed,
//! phase and i; the k-th of a closed loop's user u from seed, u and k. With
//! `weight_of = "users"` they are shares of a closed loop's users, each of whom keeps to
//! one journey: user u gets the journey that lags furthest behind its share among the
//! users 0 to u, so that the shares hold on every step of a ladder. An open loop has no
//! users, its arrivals are drawn in both cases.
//!
//! **Invariant**: nothing here depends on the number of load threads. A workload with
//! one journey draws nothing.

use super::workload::WeightOf;

/// A number drawn from three; any change in one gives another.
///
/// **Source**: the finaliser of splitmix64 (Steele, Lea and Flood, 2014), applied in turn.
pub(super) fn draw(seed: u64, a: u64, b: u64) -> u64 {
    let step = |state: u64, input: u64| {
        let mut z = (state ^ input).wrapping_add(0x9E37_79B9_7F4A_7C15);
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    };
    step(step(step(0, seed), a), b)
}

/// The journeys of a phase that are drawn.
#[derive(Debug)]
pub(super) struct Mix {
    /// Journeys with where their part of 0 to 1 ends, in order.
    parts: Vec<(usize, f64)>,
    /// The journey of each user, where users keep to one.
    of_users: Vec<usize>,
    mean_requests: f64,
}

/// What a mix is made of: a journey's index, weight and requests.
pub(super) type Weighed = (usize, f64, usize);

impl Mix {
    /// A mix for so many users at most. At least one weight is above 0.
    pub(super) fn new(journeys: &[Weighed], weight_of: WeightOf, users: u32) -> Self {
        let journeys: Vec<Weighed> = journeys
            .iter()
            .copied()
            .filter(|(_, weight, _)| *weight > 0.0)
            .collect();
        let sum: f64 = journeys.iter().map(|(_, weight, _)| weight).sum();
        let mut end = 0.0;
        let mut parts: Vec<(usize, f64)> = Vec::with_capacity(journeys.len());
        let mut mean_requests = 0.0;
        for (journey, weight, requests) in &journeys {
            end += weight / sum;
            mean_requests += weight / sum * *requests as f64;
            parts.push((*journey, end));
        }
        let of_users = if weight_of == WeightOf::Users && journeys.len() > 1 {
            seats(&journeys, sum, users)
        } else {
            Vec::new()
        };
        Self {
            parts,
            of_users,
            mean_requests,
        }
    }

    /// Requests of a journey in the mean; at least 1.
    pub(super) fn mean_requests(&self) -> f64 {
        self.mean_requests
    }

    /// Whether there is anything to draw.
    pub(super) fn is_drawn(&self) -> bool {
        self.parts.len() > 1
    }

    /// The journey that a drawn number stands for.
    pub(super) fn journey(&self, drawn: u64) -> usize {
        // The upper 53 bits, which a float holds exactly.
        let point = (drawn >> 11) as f64 / (1_u64 << 53) as f64;
        let found = self.parts.iter().find(|(_, end)| point < *end);
        // Rounding may leave a gap at the end.
        found
            .or(self.parts.last())
            .map_or(0, |(journey, _)| *journey)
    }

    /// The journey of a closed loop's user that draws such a number.
    pub(super) fn journey_of_user(&self, user: u32, drawn: u64) -> usize {
        match self.of_users.get(user as usize) {
            Some(journey) => *journey,
            None => self.journey(drawn),
        }
    }

    /// So many journeys, by their shares; they add up.
    pub(super) fn split(&self, n: u64) -> impl Iterator<Item = (usize, u64)> {
        let mut given = 0;
        let last = self.parts.len() - 1;
        self.parts
            .iter()
            .enumerate()
            .map(move |(index, (journey, end))| {
                let until = if index == last {
                    n
                } else {
                    (n as f64 * end) as u64
                };
                let share = until.min(n) - given;
                given += share;
                (*journey, share)
            })
    }
}

/// The journey of each user: always the one that lags furthest behind its share.
fn seats(journeys: &[Weighed], sum: f64, users: u32) -> Vec<usize> {
    let mut given = vec![0.0; journeys.len()];
    let mut seats = Vec::with_capacity(users as usize);
    for user in 0..users {
        let so_many = f64::from(user) + 1.0;
        let mut most = (0, f64::NEG_INFINITY);
        for (index, (_, weight, _)) in journeys.iter().enumerate() {
            let lag = weight / sum * so_many - given[index];
            // The first of equals, but for rounding.
            if lag > most.1 + 1e-9 {
                most = (index, lag);
            }
        }
        given[most.0] += 1.0;
        seats.push(journeys[most.0].0);
    }
    seats
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(drawn: impl Iterator<Item = usize>) -> [u32; 3] {
        let mut counts = [0; 3];
        for journey in drawn {
            counts[journey] += 1;
        }
        counts
    }

    #[test]
    fn draws_hold_the_weights_and_the_mean_counts_them() {
        let journeys = [(0, 1.0, 10), (1, 0.0, 99), (2, 3.0, 2)];
        let mix = Mix::new(&journeys, WeightOf::Journeys, 8);
        assert!((mix.mean_requests() - 4.0).abs() < 1e-12);
        assert!(mix.is_drawn());
        let [first, never, third] = counts((0..40_000).map(|index| mix.journey(draw(7, 1, index))));
        assert_eq!(never, 0);
        assert!(
            first.abs_diff(10_000) < 400,
            "{first}: four standard deviations"
        );
        assert_eq!(first + third, 40_000);
        let by_user = counts((0..40_000).map(|user| mix.journey_of_user(3, draw(7, 3, user))));
        assert!(by_user[0].abs_diff(10_000) < 400, "{by_user:?}");
        let split: Vec<_> = mix.split(7).collect();
        assert_eq!(split, [(0, 1), (2, 6)]);
    }

    #[test]
    fn users_hold_their_shares_on_every_step() {
        let journeys = [(0, 20.0, 1), (1, 60.0, 1), (2, 20.0, 1)];
        let mix = Mix::new(&journeys, WeightOf::Users, 200);
        for users in 1..=200_u32 {
            let counts = counts((0..users).map(|user| mix.journey_of_user(user, 0)));
            for (count, share) in counts.into_iter().zip([0.2, 0.6, 0.2]) {
                let exact = f64::from(users) * share;
                assert!(
                    (f64::from(count) - exact).abs() < 1.0,
                    "{users}: {counts:?}"
                );
            }
        }
        let fifty = counts((0..50).map(|user| mix.journey_of_user(user, 0)));
        assert_eq!(fifty, [10, 30, 10]);
    }

    #[test]
    fn one_journey_is_not_drawn() {
        let mix = Mix::new(&[(4, 2.0, 36)], WeightOf::Users, 3);
        assert!(!mix.is_drawn());
        assert_eq!((mix.journey(u64::MAX), mix.journey_of_user(9, 0)), (4, 4));
        assert!((mix.mean_requests() - 36.0).abs() < 1e-12);
        assert_eq!(mix.split(3).collect::<Vec<_>>(), [(4, 3)]);
    }

    #[test]
    fn draws_differ_in_every_part() {
        let first = draw(1, 2, 3);
        assert_eq!(first, draw(1, 2, 3));
        for other in [draw(2, 2, 3), draw(1, 3, 3), draw(1, 2, 4), draw(1, 3, 2)] {
            assert_ne!(first, other);
        }
    }
}
