//! One run of a script: what it is told, and how it is started.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender};
use std::time::Duration;

use serde_json::json;
use tokio::sync::mpsc as signals;

use super::conductor::{Conductor, Heard};
use super::error::K6Error;
use super::process::{Process, TempFolder};
use super::script::{Script, arguments};
use super::stretches::Stretch;
use crate::cpus::CpuSet;
use crate::load::generator::LoadError;
use crate::load::pinning::pin_this_thread;
use crate::load::plan::{LoadSignal, Target};
use crate::tls::TlsSettings;

/// Everything a run of a script needs.
#[derive(Debug, Clone)]
pub struct ScriptPlan {
    /// The script, as it was read for these values.
    pub script: Arc<Script>,
    /// Where requests go. **Shape**: one address.
    pub target: Target,
    /// Hosts and ports that scripts have written in, as `localhost:8080`: they lead to the
    /// target as well.
    pub hosts: Vec<String>,
    /// Names of the phases, and what of the script they are, in order.
    pub phases: Vec<(String, Stretch)>,
    /// How long after a window its first figures are summed.
    pub drain: Duration,
    /// CPUs that k6 is kept on; `None` leaves it where it is.
    pub cpus: Option<CpuSet>,
}

/// System tags that are read here; a script may want more, and no fewer.
const TAGS: [&str; 8] = [
    "name",
    "method",
    "status",
    "error",
    "error_code",
    "check",
    "scenario",
    "expected_response",
];
/// And those without which a check has no request.
const USER_TAGS: [&str; 2] = ["vu", "iter"];

/// Starts k6; what directs it runs on the calling thread until it has ended.
///
/// **Errors**: k6 cannot be started; more than one address; a script that changed.
pub(in crate::load) fn start(
    plan: ScriptPlan,
    (sender, heard): (Sender<Heard>, Receiver<Heard>),
    signals: signals::Sender<LoadSignal>,
) -> Result<(), LoadError> {
    if let Some(cpus) = &plan.cpus {
        // A process inherits the CPUs of the thread that starts it.
        pin_this_thread(cpus).map_err(|source| LoadError::Pin {
            thread: 0,
            cpus: cpus.clone(),
            source,
        })?;
    }
    if let Some(changed) = plan.script.changed_file() {
        return Err(LoadError::BadPlan(format!(
            "{} is not what it was when the sweep began",
            changed.display()
        )));
    }
    let process = start_k6(&plan, &sender)?;
    drop(sender);
    Conductor::new(plan, process, heard, signals).run()
}

fn start_k6(plan: &ScriptPlan, heard: &Sender<Heard>) -> Result<Process, LoadError> {
    let (url, hosts) = addressed(plan)?;
    let folder = TempFolder::new()?;
    let config = folder.config(&hosts)?;
    let script = &plan.script;
    let mut command = Command::new(&script.binary.path);
    command.args(["run", "--address", "", "--no-summary", "--no-color"]);
    command.args(["--no-usage-report", "--verbose", "--log-format", "json"]);
    command.arg("--config").arg(config);
    command.args(["--system-tags", &tags(&script.options.system_tags)]);
    if let Some(tls) = &plan.target.wire.tls {
        trust(&mut command, tls.settings(), &folder)?;
    }
    command.args(arguments(&script.environment, &url));
    let add = |command: &mut Command, samples: &Path| {
        command
            .arg("--out")
            .arg(format!("json={}", samples.display()));
        command.arg(&script.path);
    };
    let thresholds = &script.options.thresholds;
    Ok(Process::start(command, folder, thresholds, add, heard)?)
}

/// Has k6 trust whom `tls` says in place of the host's own authorities.
///
/// **Source**: Go's crypto/x509: a file and folders that the environment names are read in place of the usual ones.
fn trust(command: &mut Command, tls: &TlsSettings, folder: &TempFolder) -> Result<(), K6Error> {
    if let Some(ca) = &tls.ca {
        command.env(
            "SSL_CERT_FILE",
            std::path::absolute(ca).unwrap_or_else(|_| ca.clone()),
        );
        command.env("SSL_CERT_DIR", folder.empty("authorities")?);
    }
    if tls.insecure {
        command.arg("--insecure-skip-tls-verify");
    }
    Ok(())
}

fn tags(wanted: &[String]) -> String {
    let wanted = wanted.iter().map(String::as_str);
    let mut all: Vec<&str> = TAGS.into_iter().chain(USER_TAGS).chain(wanted).collect();
    all.sort_unstable();
    all.dedup();
    all.join(",")
}

/// The URL that a script is given, and k6's configuration that makes names lead there.
///
/// The name is the one in the matrix, so that what the service is told is the same in
/// every trial. k6 knows no names with `_`, and takes a script's own `hosts` instead of
/// ours: there the URL has the address.
fn addressed(plan: &ScriptPlan) -> Result<(String, String), LoadError> {
    let target = &plan.target;
    let [address] = target.addresses[..] else {
        let n = target.addresses.len();
        return Err(LoadError::BadPlan(format!(
            "a k6 script reaches one address and the target has {n}"
        )));
    };
    let has_hosts = plan.script.options.has_hosts;
    let is_usable = !has_hosts && is_host(&target.host);
    let mut hosts = serde_json::Map::new();
    let named = is_usable.then_some(&target.host);
    let wanted = plan.hosts.iter().filter(|host| is_host(host));
    for host in named.into_iter().chain(wanted) {
        hosts.insert(host.clone(), json!(address.to_string()));
    }
    let authority = if is_usable {
        target.host.clone()
    } else {
        address.to_string()
    };
    let config = if has_hosts {
        json!({})
    } else {
        json!({ "hosts": hosts })
    };
    Ok((
        format!("{}://{authority}{}", target.wire.scheme(), target.base_path),
        config.to_string(),
    ))
}

/// Whether k6 takes a host and port as one to lead elsewhere.
///
/// **Source**: k6's `hosts` option: a name of letters, digits and hyphens, or an IPv4 address.
pub(super) fn is_host(text: &str) -> bool {
    let (host, port) = text.rsplit_once(':').unwrap_or((text, "80"));
    let is_label = |label: &str| {
        let is_letter = |c: char| c.is_ascii_alphanumeric() || c == '-';
        !label.is_empty()
            && label.len() <= 63
            && label.chars().all(is_letter)
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    host.split('.').all(is_label) && port.parse::<u16>().is_ok_and(|port| port > 0)
}

impl From<K6Error> for LoadError {
    fn from(source: K6Error) -> Self {
        Self::Script(source)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_k6_refuses_are_not_given_to_it() {
        for (host, is_taken) in [
            ("app:8080", true),
            ("localhost:80", true),
            ("127.0.0.1:8080", true),
            ("a.example.org:1", true),
            ("my_app:8080", false),
            ("[::1]:8080", false),
            ("app:0", false),
            ("app:x", false),
            ("-app:1", false),
            (":80", false),
        ] {
            assert_eq!(is_host(host), is_taken, "{host}");
        }
    }

    #[test]
    fn a_script_gets_the_tags_it_wants_and_those_that_are_read() {
        let text = tags(&["ip".to_owned(), "name".to_owned()]);
        assert_eq!(
            text,
            "check,error,error_code,expected_response,ip,iter,method,name,scenario,status,vu"
        );
    }
}
