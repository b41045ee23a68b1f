//! What each generator really printed, and what must be read from it.

use super::*;

fn read(peer: Peer, said: &str, table: &str) -> Said {
    peer.read(said, table)
        .unwrap_or_else(|| panic!("{peer:?} is not understood"))
}

fn figures(said: Said) -> (f64, f64, f64, f64) {
    (said.rps, said.p50_ms, said.p99_ms, said.failed)
}

#[test]
fn ours_has_its_own_cpu_time_and_the_totals_come_first() {
    let said = r#"{"due":10,"requests":10,"successes":9,"refused":1,"errors":2,"throughput_rps":6933.0,"latency_ms":{"mean":4.6,"p50":1.5,"p99":21.5},"service_ms":{"p50":7,"p99":7},"generator_cpu_s":0.39,"operations":{"GET /":{"refused":5,"errors":5}}}"#;
    let said = read(Peer::Ours, said, "");
    assert_eq!(figures(said), (6933.0, 1.5, 21.5, 3.0));
    assert_eq!(said.cpu_s, Some(0.39));
}

#[test]
fn wrk_says_failures_only_where_there_are_any() {
    let said = "  Latency Distribution\n     50%  509.00us\n     75%    5.80ms\n     90%   10.06ms\n     99%   16.63ms\n  27349 requests in 2.05s, 4.72MB read\nRequests/sec:  13331.14\n";
    assert_eq!(
        figures(read(Peer::Wrk, said, "")),
        (13331.14, 0.509, 16.63, 0.0)
    );
    let failed = format!("{said}  Non-2xx or 3xx responses: 27349\n");
    assert_eq!(
        figures(read(Peer::Wrk, &failed, "")),
        (13331.14, 0.509, 16.63, 27349.0)
    );
}

#[test]
fn hey_counts_by_status() {
    let said = "  Requests/sec:\t9688.8483\n\nLatency distribution:\n  10% in 0.0006 secs\n  50% in 0.0028 secs\n  99% in 0.0129 secs\n\nStatus code distribution:\n  [200]\t19410 responses\n  [404]\t7 responses\n  [502]\t3 responses\n\nError distribution:\n  [9]\tGet 127.0.0.1:80\n";
    let (rps, p50_ms, p99_ms, failed) = figures(read(Peer::Hey, said, ""));
    assert_eq!((rps, failed), (9688.8483, 10.0));
    assert!((p50_ms - 2.8).abs() < 1e-9 && (p99_ms - 12.9).abs() < 1e-9);
}

#[test]
fn oha_says_seconds() {
    let said = r#"{"summary":{"successRate":1.0,"requestsPerSec":25000.5},"latencyPercentiles":{"p10":0.0001,"p50":0.0012,"p99":0.0045,"p99.9":0.1},"statusCodeDistribution":{"200":50000,"503":4},"errorDistribution":{"aborted due to deadline":32}}"#;
    let (rps, p50_ms, p99_ms, failed) = figures(read(Peer::Oha, said, ""));
    assert_eq!((rps, failed), (25000.5, 4.0));
    assert!((p50_ms - 1.2).abs() < 1e-9 && (p99_ms - 4.5).abs() < 1e-9);
}

#[test]
fn ab_has_its_percentiles_in_a_file() {
    let said = "Complete requests:      26699\nFailed requests:        2\nNon-2xx responses:      5\nRequests per second:    13333.41 [#/sec] (mean)\n";
    let table = "Percentage served,Time in ms\n0,0.150\n50,0.420\n99,14.564\n100,19.429\n";
    assert_eq!(
        figures(read(Peer::Ab, said, table)),
        (13333.41, 0.42, 14.564, 7.0)
    );
}

#[test]
fn k6_and_the_bare_loops_speak_the_same_words() {
    let said = r#"{"requests":10742,"rps":5355.1,"p50_ms":4.7,"p99_ms":21.4,"failed":0}"#;
    for peer in [Peer::K6, Peer::Hyper, Peer::Reqwest] {
        assert_eq!(figures(read(peer, said, "")), (5355.1, 4.7, 21.4, 0.0));
    }
}

#[test]
fn words_that_lack_a_figure_are_not_guessed() {
    for peer in Peer::ALL {
        assert_eq!(peer.read("", ""), None, "{peer:?}");
    }
}

#[test]
fn paths_with_spaces_stay_one_word() {
    let places = Places {
        binary: "/a b/nightsweep".into(),
        loops: "/a b/bare-loops".into(),
        root: "/a b".into(),
        scratch: "/c d".into(),
    };
    for case in Case::ALL {
        for peer in Peer::ALL.into_iter().filter(|peer| peer.does(case)) {
            let words = peer.words(case, "http://127.0.0.1:1", 10, &places);
            let broken = |word: &String| word.ends_with("/a") || word.ends_with("/c");
            assert!(!words.iter().any(broken), "{words:?}");
        }
    }
}
