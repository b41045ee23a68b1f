use super::*;

#[test]
fn a_target_over_tls_has_what_is_to_be_known_of_it() {
    let text = LEAST.replace(
        "target = \"http://app:8080\"",
        "target = 'https://app'\nhttp2 = true\ntls = { ca = 'a/ca.pem', cert = 'c.pem', key = 'c.key', server_name = 'x.test' }",
    );
    let load = good(&text).load;
    let target = &load.target.value;
    assert_eq!((target.is_https, target.port), (true, 443));
    let tls = load.tls.unwrap().value;
    assert_eq!(tls.ca, Some("a/ca.pem".into()));
    assert_eq!(tls.identity, Some(("c.pem".into(), "c.key".into())));
    assert_eq!(
        (tls.insecure, tls.server_name.as_deref()),
        (false, Some("x.test"))
    );
    assert!(load.http2);
    let plain = good(LEAST).load;
    assert_eq!((plain.tls, plain.http2), (None, false));
}

#[test]
fn mistakes_of_tls_are_told_at_once() {
    let with = |target: &str, tls: &str| {
        let lines = format!("target = '{target}'\nhttp2 = 2\ntls = {{ {tls} }}");
        replaced("target = \"http://app:8080\"", &lines)
    };
    insta::assert_snapshot!(with("http://app", "ca = 1, insecure = true, key = 'k'"), @r#"
    m.toml:12:9: `http2` in [load] must be true or false, not the number 2
    m.toml:13:1: [load] has `tls` and a target without TLS
      hint: write target = "https://...", or leave `tls` out
    m.toml:13:14: `ca` in `tls` of [load] must be a text in quotes, not the number 1
    m.toml:13:34: `tls` of [load] has `key` and no `cert` to it
    "#);
    insta::assert_snapshot!(with("https://app", "ca = 'c', insecure = true, cert = 'c', name = 'x'"), @"
    m.toml:12:9: `http2` in [load] must be true or false, not the number 2
    m.toml:13:19: `tls` of [load] has both `ca` (trust these) and `insecure` (trust anybody)
    m.toml:13:36: `tls` of [load] has `cert` and no `key` to it
    m.toml:13:48: unknown key `name` in `tls` of [load]
      hint: allowed here: ca, cert, key, server_name, insecure
    ");
}
