//! A script whose target speaks TLS: what `tls` of the matrix says holds for k6, too.

use super::run::{cut, run, turn};
use crate::load::Target;
use crate::load::test_http2::{certificate_file, server_config};
use crate::load::test_server::{Over, TestServer, ok};
use crate::tls::{TlsClient, TlsSettings, Wire};

/// Requests that succeeded and that did not.
fn counts(settings: TlsSettings) -> (u64, u64) {
    let config = server_config("server", "http/1.1", false);
    let server = TestServer::start_over(Over::Tls(config), |_| ok());
    let target = Target {
        wire: Wire {
            tls: Some(TlsClient::new(settings).unwrap()),
            http2: false,
        },
        ..server.target.clone()
    };
    let ran = run("bad/by-cell.js", &target, &[cut(0, None)]);
    let counts = ran.summaries[0].total.counts;
    (counts.successes, counts.errors.total())
}

#[test]
fn a_service_is_trusted_as_the_matrix_says() {
    let _turn = turn();
    let trusting = |ca: Option<&str>, insecure| TlsSettings {
        ca: ca.map(certificate_file),
        insecure,
        ..TlsSettings::default()
    };
    for (settings, is_trusted) in [
        (trusting(Some("ca.pem"), false), true),
        (trusting(Some("other.pem"), false), false),
        (trusting(None, true), true),
    ] {
        let (successes, errors) = counts(settings.clone());
        assert!(
            successes + errors > 10,
            "{settings:?}: {successes}, {errors}"
        );
        assert_eq!(
            (successes > 0, errors > 0),
            (is_trusted, !is_trusted),
            "{settings:?}"
        );
    }
}
