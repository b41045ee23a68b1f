//! Journeys that fill a database, every request of which must succeed.
//!
//! A closed loop without windows: so many users, each sending its next journey when
//! the last is over, until so many journeys are done. The same preparation, client and
//! judgement as the measured load; the first failure ends it.

use std::cell::Cell;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::try_join_all;
use indexmap::IndexMap;
use serde_json::Value;

use super::answer::Keep;
use super::connection::Connection;
use super::generator::LoadError;
use super::journey::send;
use super::once::answer_on;
use super::plan::Target;
use super::prepare::{Prepared, prepare};
use super::request::RequestBuffer;
use super::template::{Counter, Dynamic};
use super::workload::Workload;
use crate::measure::Outcome;

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
    let users = (0..users).map(|user| run_user(plan, &prepared, user, users, &begun));
    Ok(try_join_all(users).await?.into_iter().sum())
}

async fn run_user(
    plan: &SeedPlan,
    prepared: &Prepared,
    user: u32,
    users: u32,
    begun: &Cell<u64>,
) -> Result<u64, SeedError> {
    let mut session = Session {
        // Users are spread over the target's containers.
        address: plan.target.addresses[user as usize % plan.target.addresses.len()],
        timeout: plan.timeout,
        connection: None,
        buffer: RequestBuffer::default(),
        random: fastrand::Rng::with_seed(plan.seed.wrapping_add(u64::from(user))),
        // Numbers that no two users share.
        counter: Counter::new(user as usize, users as usize),
        user,
    };
    let mut n_requests = 0;
    while begun.get() < plan.journeys {
        begun.set(begun.get() + 1);
        let journey = begun.get();
        n_requests += session
            .journey(prepared)
            .await
            .map_err(|(operation, why)| SeedError::Failed {
                journey,
                journeys: plan.journeys,
                operation,
                why,
            })?;
    }
    Ok(n_requests)
}

/// What one user keeps from journey to journey.
struct Session {
    address: SocketAddr,
    timeout: Duration,
    connection: Option<Connection>,
    buffer: RequestBuffer,
    random: fastrand::Rng,
    counter: Counter,
    user: u32,
}

impl Session {
    /// One journey; its requests, or the one that failed and why.
    async fn journey(&mut self, prepared: &Prepared) -> Result<u64, (String, String)> {
        let mut captures: Vec<Option<Value>> = vec![None; prepared.captures.len()];
        for operation in &prepared.operations {
            let failed = |why: String| (prepared.names[operation.name as usize].clone(), why);
            let mut dynamic = Dynamic {
                captures: &captures,
                random: &mut self.random,
                counter: &mut self.counter,
                user: self.user,
            };
            let outgoing = operation
                .request
                .build(&prepared.captures, &mut dynamic, &mut self.buffer)
                .map_err(failed)?;
            let to = (&prepared.dialer, self.address);
            let sending = send(&mut self.connection, to, &outgoing, Keep::All);
            match tokio::time::timeout(self.timeout, sending).await {
                Ok(sent) => sent.map_err(|error| failed(error.message))?,
                Err(_) => return Err(failed(format!("no whole answer within {:?}", self.timeout))),
            }
            let answer = answer_on(self.connection.as_ref());
            let mut found = Vec::new();
            let judged = operation.judge(prepared, answer, &mut dynamic, &mut found);
            if judged.outcome != Outcome::Success {
                let status = answer.status();
                let why = judged.why.unwrap_or_else(|| format!("status {status}"));
                return Err(failed(why));
            }
            for (slot, value) in found {
                captures[slot] = Some(value);
            }
            if !operation.think.is_zero() {
                tokio::time::sleep(operation.think).await;
            }
        }
        Ok(prepared.operations.len() as u64)
    }
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
