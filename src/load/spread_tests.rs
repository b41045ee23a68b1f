//! Connections over the addresses of several replicas.

use std::sync::atomic::Ordering;

use super::*;
use crate::load::test_load::{closed, ms, open, plan, run, run_one};
use crate::load::test_server::{Got, Reply, TestServer, ok};
use crate::load::{Target, Workload};

/// A plan over the addresses of several servers that are alike.
fn spread(servers: &[TestServer], phases: &[(LoadModel, u64)], threads: usize) -> LoadPlan {
    let target = Target {
        addresses: servers
            .iter()
            .flat_map(|one| one.target.addresses.clone())
            .collect(),
        ..servers[0].target.clone()
    };
    LoadPlan {
        threads,
        ..plan(&target, Workload::get("/"), phases)
    }
}

fn connections(servers: &[TestServer]) -> Vec<u64> {
    let n = |server: &TestServer| server.seen.connections.load(Ordering::SeqCst);
    servers.iter().map(n).collect()
}

#[test]
fn users_are_spread_over_the_addresses_and_stay_where_they_are() {
    let after = || Reply::After(ms(2), Box::new(ok()));
    for (users, n_servers, threads, expected) in [
        (7, 3, 2, vec![3, 2, 2]),
        (8, 2, 2, vec![4, 4]),
        (2, 3, 1, vec![1, 1, 0]),
        (9, 4, 3, vec![3, 2, 2, 2]),
    ] {
        let servers: Vec<TestServer> = (0..n_servers)
            .map(|_| TestServer::start(move |_| after()))
            .collect();
        // An open loop between the closed ones leaves idle connections to choose from.
        let phases = [
            (closed(users), 150),
            (open(100.0, 4), 100),
            (closed(users), 150),
        ];
        let summaries = run(spread(&servers, &phases[..1], threads));
        assert!(summaries[0].total.counts.successes > 0);
        assert_eq!(connections(&servers), expected, "{users} users");
        let most: Vec<usize> = servers
            .iter()
            .map(|one| one.seen.most_open.load(Ordering::SeqCst))
            .collect();
        let before = connections(&servers);
        run(spread(&servers, &phases, threads));
        for ((server, before), most) in servers.iter().zip(&before).zip(most) {
            // Users come back to connections of their own address, whatever came between; each
            // of the four journeys of the open loop may have needed one more.
            let opened = server.seen.connections.load(Ordering::SeqCst) - before;
            assert!(opened as usize <= most + 4, "{opened} after {most}");
        }
    }
}

#[test]
fn a_connection_that_is_opened_again_keeps_its_address() {
    let close = |_: &Got| Reply::After(ms(1), Box::new(Reply::AnswerThenClose(200, "ok".into())));
    let servers = [
        TestServer::start(close),
        TestServer::start(close),
        TestServer::start(close),
    ];
    let summary = run_one(spread(&servers, &[(closed(1), 1_000)], 1));
    assert!(summary.total.counts.successes > 1);
    let opened = connections(&servers);
    assert!(opened[0] > 1 && opened[1..] == [0, 0], "{opened:?}");
}

#[test]
fn arrivals_of_an_open_loop_take_turns_even_on_one_thread() {
    for (n_servers, threads) in [(2, 1), (2, 2), (3, 2), (3, 4)] {
        let servers: Vec<TestServer> = (0..n_servers)
            .map(|_| TestServer::start(|_| ok()))
            .collect();
        let summary = run_one(spread(&servers, &[(open(200.0, 50), 600)], threads));
        assert_eq!(summary.total.counts.successes, summary.total.counts.due);
        let requests: Vec<u64> = servers.iter().map(TestServer::requests).collect();
        let (least, most) = (
            requests.iter().min().unwrap(),
            requests.iter().max().unwrap(),
        );
        // Turns, so within one each; what goes on unrecorded at the end may stop anywhere.
        assert!(
            most - least <= threads as u64 + 1 && *least > 20,
            "{requests:?} by {threads}"
        );
    }
}
