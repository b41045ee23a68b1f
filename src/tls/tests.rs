use super::*;
use crate::problem::chain;

fn file(name: &str) -> PathBuf {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/certificates");
    Path::new(folder).join(name)
}

fn with_ca(path: PathBuf) -> TlsSettings {
    TlsSettings {
        ca: Some(path),
        ..TlsSettings::default()
    }
}

#[test]
fn files_that_cannot_be_used_say_which_and_why() {
    let identity = |certificate: &str, key: &str| TlsSettings {
        identity: Some((file(certificate), file(key))),
        ..with_ca(file("ca.pem"))
    };
    for (settings, words) in [
        (with_ca(file("none.pem")), "none.pem: failed to open file"),
        (with_ca(file("server.key")), "server.key: it holds none"),
        (with_ca(file("make.sh")), "make.sh: it holds none"),
        (
            identity("client.pem", "client.pem"),
            "read a private key from",
        ),
        (identity("client.pem", "server.key"), "cannot be used: "),
    ] {
        let error = TlsClient::new(settings).unwrap_err();
        let said = chain(&error);
        assert!(said.contains(words), "{words}: {said}");
        assert!(!error.hint().is_empty());
    }
}

#[test]
fn the_name_of_a_certificate_is_the_hosts_without_its_port() {
    let client = TlsClient::new(with_ca(file("ca.pem"))).unwrap();
    for (host, name) in [
        ("app", "app"),
        ("app:8443", "app"),
        ("my_app:443", "my_app"),
        ("127.0.0.1:1", "127.0.0.1"),
        ("[::1]:443", "::1"),
        ("::1", "::1"),
    ] {
        assert_eq!(client.name(host).unwrap().to_str(), name);
    }
    let error = client.name("a b").unwrap_err();
    assert_eq!(
        error.to_string(),
        "`a b` is no name that a certificate can be for"
    );
    let named = TlsSettings {
        server_name: Some("x.test".to_owned()),
        ..with_ca(file("ca.pem"))
    };
    let client = TlsClient::new(named).unwrap();
    assert_eq!(client.name("app:1").unwrap().to_str(), "x.test");
}

#[test]
fn a_wire_says_what_is_spoken_over_it() {
    let tls = Some(TlsClient::new(with_ca(file("ca.pem"))).unwrap());
    let secured = Wire { tls, http2: true };
    assert_eq!(secured.scheme(), "https");
    assert_eq!(secured.client(), "HTTP/2 by hyper over TLS");
    assert_eq!(secured, secured.clone());
    assert_ne!(secured, Wire::default());
    assert_eq!(Wire::default().scheme(), "http");
}

#[test]
fn errors_of_tls_are_found_however_they_are_wrapped() {
    let inner = io::Error::new(
        io::ErrorKind::InvalidData,
        rustls::Error::InvalidCertificate(CertificateError::Expired),
    );
    let outer = io::Error::other(inner);
    assert_eq!(
        words_of(&outer).unwrap(),
        "the server's certificate has expired"
    );
    assert_eq!(words_of(&io::Error::other("else")), None);
}
