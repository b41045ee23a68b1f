//! Journeys that fill a database, every request of which must succeed.
//!
//! A closed loop without windows: so many users, each sending its next journey when
//! the last is over, until so many journeys are done. The same preparation, client,
//! judgement and set-ups as the measured load; the first failure ends it. Which journey is
//! the n-th is drawn by weight.

use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::try_join_all;
use indexmap::IndexMap;
use serde_json::Value;

use super::cookies::CookieJar;
use super::data::Rows;
use super::fine_timer::Waits;
use super::generator::LoadError;
use super::mix::draw;
use super::numbers::{ForWhom, Numbers};
use super::plan::Target;
use super::prepare::prepare;
use super::request::RequestBuffer;
use super::setup::{self, set_up_load};
use super::sure::Sender;
use super::thread_plan::ThreadPlan;
use super::workload::{Cookies, SetupScope, Workload};

/// What is sent, how often, by how many.
#[derive(Debug, Clone)]
pub struct SeedPlan {
    /// Where requests go.
    pub target: Target,
    /// What is sent.
    pub workload: Arc<Workload>,
    /// Values for the workload's `${}` beside its own.
    pub variables: IndexMap<String, String>,
    /// Users that send at once; at least 1.
    pub users: u32,
    /// Journeys of all users together.
    pub journeys: u64,
    /// Longest wait for one answer.
    pub timeout: Duration,
    /// Same seed, same random values.
    pub seed: u64,
}

/// Seeding that came to an end too soon.
#[derive(Debug, thiserror::Error)]
pub enum SeedError {
    /// It could not begin.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// A request did not succeed.
    #[error("journey {journey} of {journeys}: `{operation}` failed: {why}")]
    Failed {
        /// Which, from 1, in the order in which they began.
        journey: u64,
        /// Of how many.
        journeys: u64,
        /// The request.
        operation: String,
        /// Why it is no success.
        why: String,
    },
}

/// Sends all journeys; requests that succeeded.
///
/// **Errors**: names without a value; the first request that does not succeed.
/// **Cancel**: stops sending.
pub async fn seed(plan: &SeedPlan) -> Result<u64, SeedError> {
    let prepared =
        prepare(&plan.workload, &plan.target, &plan.variables).map_err(LoadError::from)?;
    let begun = Cell::new(0);
    let users = u32::try_from(plan.journeys).map_or(plan.users, |n| plan.users.min(n));
    let shared = ThreadPlan::of_seed(plan, prepared, users);
    let captured = set_up_load(&shared)
        .await
        .map_err(|why| SeedError::Load(LoadError::SetUp(why)))?;
    // Set once, here.
    let _ = shared.of_trial.set(captured);
    let users = (0..users).map(|user| run_user(plan, &shared, user, &begun));
    Ok(try_join_all(users).await?.into_iter().sum())
}

/// What is known by now, by slot.
type Captures = Vec<Option<Value>>;

async fn run_user(
    plan: &SeedPlan,
    shared: &ThreadPlan,
    user: u32,
    begun: &Cell<u64>,
) -> Result<u64, SeedError> {
    let prepared = &shared.prepared;
    let mix = &shared.phases[0].mix;
    let numbers = Numbers::new(
        fastrand::Rng::with_seed(plan.seed.wrapping_add(u64::from(user))),
        // Numbers that no two users share.
        shared.counter(user as usize),
    );
    let mut connection = None;
    let mut jar = (prepared.cookies != Cookies::Off).then(CookieJar::default);
    let mut buffer = RequestBuffer::default();
    let mut rows = Vec::new();
    let mut of_user: Option<Captures> = None;
    let mut n_requests = 0;
    while begun.get() < plan.journeys {
        begun.set(begun.get() + 1);
        let journey = begun.get();
        let failed = |operation: String, why: String| SeedError::Failed {
            journey,
            journeys: plan.journeys,
            operation,
            why,
        };
        let drawn = draw(plan.seed, journey, 0);
        let index = mix.journey(drawn);
        let is_first = of_user.is_none();
        let setups = prepared.setups.iter();
        let of_users = setups.filter(|setup| is_first && setup.scope == SetupScope::User);
        let before = of_users.map(|setup| (&setup.operations[..], &setup.data, true));
        let own = (
            prepared.of_journey(index),
            &prepared.journeys[index].data,
            false,
        );
        let mut captures = of_user
            .clone()
            .unwrap_or_else(|| shared.captured_by_trial());
        for (steps, sets, is_setup) in before.chain([own]) {
            setup::pick_rows(shared, sets, user, drawn, &mut rows);
            if prepared.cookies == Cookies::Journey && !is_setup {
                jar = Some(CookieJar::default());
            }
            let mut sender = Sender {
                prepared,
                numbers: &numbers,
                whom: ForWhom {
                    user,
                    rows: Rows {
                        sets: &prepared.data,
                        picked: &rows,
                    },
                },
                waits: Waits::Runtime,
                // Users are spread over the target's containers.
                to: (
                    &prepared.dialer,
                    shared.addresses[user as usize % shared.addresses.len()],
                ),
                timeout: plan.timeout,
                connection: &mut connection,
                jar: jar.as_mut(),
                buffer: &mut buffer,
            };
            if !is_setup && of_user.is_none() {
                of_user = Some(captures.clone());
            }
            let sent = sender.send_all(steps, &mut captures).await;
            let names = if is_setup {
                &prepared.setup_names
            } else {
                &prepared.names
            };
            sent.map_err(|error| failed(names[error.name as usize].clone(), error.why))?;
            n_requests += steps.len() as u64;
        }
    }
    Ok(n_requests)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::sync::Mutex;

    use super::*;
    use crate::load::test_load::workload;
    use crate::load::test_server::{Reply, TestServer};

    const TWO_STEPS: &str = "[[step]]\nname = \"make\"\nmethod = \"POST\"\npath = \"/made/${counter}\"\n\
        capture = { id = \"$.id\" }\n[[step]]\nname = \"read\"\npath = \"/read/${id}\"";

    fn run(server: &TestServer, text: &str, users: u32, journeys: u64) -> Result<u64, SeedError> {
        let plan = SeedPlan {
            target: server.target.clone(),
            workload: Arc::new(workload(text)),
            variables: IndexMap::new(),
            users,
            journeys,
            timeout: Duration::from_secs(5),
            seed: 1,
        };
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(seed(&plan))
    }

    #[test]
    fn all_journeys_are_sent_and_no_number_twice() {
        let paths = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&paths);
        let server = TestServer::start(move |got| {
            log.lock().unwrap().push(got.path.clone());
            Reply::Answer(200, "{\"id\": 7}".to_owned())
        });
        assert_eq!(run(&server, TWO_STEPS, 3, 10).unwrap(), 20);
        let paths = paths.lock().unwrap();
        let made: HashSet<_> = paths
            .iter()
            .filter(|path| path.starts_with("/made"))
            .collect();
        assert_eq!(made.len(), 10, "{paths:?}");
        assert_eq!(paths.iter().filter(|path| *path == "/read/7").count(), 10);
    }

    #[test]
    fn the_first_failure_ends_it_and_says_which_request_it_was() {
        let server = TestServer::start(|got| {
            if got.path == "/made/3" {
                return Reply::Answer(503, "busy".to_owned());
            }
            Reply::Answer(200, "{\"id\": 7}".to_owned())
        });
        let error = run(&server, TWO_STEPS, 1, 10).unwrap_err();
        let words = error.to_string();
        assert!(
            words.starts_with("journey 3 of 10: `make` failed: ") && words.contains("503"),
            "{words}"
        );
    }

    #[test]
    fn refused_is_no_success_here() {
        let server = TestServer::start(|_| Reply::Answer(429, String::new()));
        let error = run(&server, "refused = [429]\n[[step]]\npath = \"/\"", 1, 1).unwrap_err();
        assert!(error.to_string().contains("429"), "{error}");
    }
}
