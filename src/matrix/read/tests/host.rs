//! `[host]` and `[[prove]]`.

use super::{LEAST, good, with};
use crate::cpus::CpuMode;

#[test]
fn hosts_and_proofs_are_read() {
    let sweep = good(LEAST);
    assert_eq!(
        (sweep.host.cpu_mode.is_none(), sweep.host.reserve_cpus),
        (true, None)
    );
    assert!(sweep.proves.is_empty());
    let more = "[host]\ncpu_mode = 'cpuset'\nreserve_cpus = 2\n\
        [[prove]]\nurl = 'http://app:8080/metrics?full=1'\nseries = 'pool{name=\"main\"}'\nequals = '${cpus}'\n\
        [[prove]]\nurl = 'http://db'\njson = '$.size'\nequals = 8\n";
    let sweep = good(&format!("{LEAST}{more}"));
    assert_eq!(sweep.host.cpu_mode.as_ref().unwrap().value, CpuMode::Cpuset);
    assert_eq!(sweep.host.reserve_cpus, Some(2));
    let [first, second] = sweep.proves.as_slice() else {
        panic!("{:?}", sweep.proves);
    };
    assert_eq!(
        (first.url.value.host.as_str(), first.url.value.port),
        ("app", 8080)
    );
    assert_eq!(
        (first.path.as_str(), second.path.as_str()),
        ("/metrics?full=1", "/")
    );
    assert_eq!(first.reported.to_string(), "pool{name=\"main\"}");
    assert_eq!(second.equals.as_str(), "8");
    assert_eq!(second.url.value.port, 80);
}

#[test]
fn mistakes_of_hosts_and_proofs_are_told_at_once() {
    insta::assert_snapshot!(with("[host]\ncpu_mode = 'quotas'\nreserve_cpus = 0\ncpus = 1\n\
        [[prove]]\nurl = 'https://app/met rics'\nseries = 'a{b}'\nequals = 'x${cpsu}'\n\
        [[prove]]\nurl = 'http://app/m?a b'\nseries = 'a'\njson = '$.a'\nequals = '$cpus'\n\
        [[prove]]\nurl = 'http://app'\nequals = []\n\
        [[prove]]\njson = 'a.b'\n"), @r#"
    m.toml:19:12: `cpu_mode` in [host] must be "quota" or "cpuset", not the text "quotas"
    m.toml:20:16: `reserve_cpus` in [host] must be a whole number from 1 to 1024, not the number 0
    m.toml:21:1: unknown key `cpus` in [host]
      hint: allowed here: cpu_mode, reserve_cpus
    m.toml:23:7: `url` in [[prove]] number 1 holds the character ' ' (allowed: such as http://app:8080)
    m.toml:24:10: in [[prove]] number 1, `a{b}` is not a series: its labels are not understood (allowed: `name` or `name{label="value"}`)
    m.toml:25:12: `${cpsu}` in `equals` of [[prove]] number 1 is no axis or derived value
      hint: did you mean `${cpus}`?
    m.toml:27:7: `url` in [[prove]] number 2 has a query with a space or a `#`
    m.toml:29:1: [[prove]] number 2 has both `series` and `json` (allowed: one of them)
    m.toml:30:11: in `equals` of [[prove]] number 2, a `$` stands alone (`$$` is a dollar)
    m.toml:31:1: [[prove]] number 3 does not say where the value is
      hint: add series = "db_pool_size" (Prometheus) or json = "$.pool.size"
    m.toml:33:10: `equals` in [[prove]] number 3 must be a text such as "${db_pool}", or a plain value, not a list
    m.toml:34:1: [[prove]] number 4 has no `equals`
      hint: add a line such as: equals = "${db_pool}"
    m.toml:34:1: [[prove]] number 4 has no `url`
      hint: add a line such as: url = "http://app:8080/metrics"
    m.toml:35:8: in [[prove]] number 4, `a.b` is not a JSON path: it does not start with `$` (allowed: `$.name`, `$['a name']`, `$[0]`)
    "#);
}
