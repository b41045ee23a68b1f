//! A real registry on this host, from Debian's package, for as long as a test.

use std::io::Write as _;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::support::download;

pub(super) const USER: &str = "night";
/// Sent in plain base64 it has a `+`, which the engine does not read.
pub(super) const PASSWORD: &str = "sw33p?~?~>~?>~";

/// The password above, hashed by `htpasswd -nbBC 4`.
const HTPASSWD: &str = "night:$2y$04$YkG/ZiVwkA/fnL.1JedxKeJasqIEMWBOXlC9RjmXJUkoDZDOlAHe.";

/// A registry that wants a password; it ends with the value.
pub(super) struct Registry {
    /// `127.0.0.1:PORT`; the engine takes plain HTTP from loopback addresses.
    pub(super) host: String,
    server: Child,
    folder: tempfile::TempDir,
}

impl Drop for Registry {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

impl Registry {
    pub(super) async fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        // The server takes a port and no socket: the one that was free a moment ago.
        let free = TcpListener::bind("127.0.0.1:0").unwrap();
        let host = free.local_addr().unwrap().to_string();
        drop(free);
        let path = folder.path().display();
        let config = format!(
            "version: 0.1\nlog: {{level: error, accesslog: {{disabled: true}}}}\n\
             storage: {{filesystem: {{rootdirectory: {path}/data}}}}\n\
             http: {{addr: '{host}'}}\n\
             auth: {{htpasswd: {{realm: test, path: {path}/htpasswd}}}}\n"
        );
        fs_err::write(folder.path().join("config.yml"), config).unwrap();
        fs_err::write(folder.path().join("htpasswd"), HTPASSWD).unwrap();
        let server = Command::new(program())
            .arg("serve")
            .arg(folder.path().join("config.yml"))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut last = String::new();
        let registry = Self {
            host,
            server,
            folder,
        };
        let answers = async {
            while let Err(error) = tokio::net::TcpStream::connect(&registry.host).await {
                last = error.to_string();
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        let answered = tokio::time::timeout(Duration::from_secs(30), answers).await;
        assert!(answered.is_ok(), "the registry does not answer: {last}");
        registry
    }

    /// The name of an image in it.
    pub(super) fn image(&self, name: &str) -> String {
        format!("{}/{name}", self.host)
    }

    /// A folder with a `config.json` of the Docker CLI.
    pub(super) fn cli_config(&self, password: &str) -> PathBuf {
        let auth = STANDARD.encode(format!("{USER}:{password}"));
        let text = format!(
            r#"{{"auths": {{"{}": {{"auth": "{auth}"}}, "{}": {{"auth": "{auth}"}}}}}}"#,
            self.host,
            self.alias()
        );
        self.write(&format!("cli-{}", password.len()), "config.json", &text)
    }

    /// A file in a folder of the registry's own; the folder.
    pub(super) fn write(&self, folder: &str, name: &str, text: &str) -> PathBuf {
        let folder = self.folder.path().join(folder);
        fs_err::create_dir_all(&folder).unwrap();
        fs_err::write(folder.join(name), text).unwrap();
        folder
    }

    /// The same registry under another name, so that tags here can stay as they are.
    fn alias(&self) -> String {
        self.host.replace("127.0.0.1", "localhost")
    }

    /// Gives the registry an image with one file in it; the engine holds it no more.
    pub(super) fn publish(&self, name: &str, content: &str) {
        let image = format!("{}/{name}", self.alias());
        let config = self.cli_config(PASSWORD);
        import(&image, content);
        docker(&config, &["push", "--quiet", &image]);
        docker(&config, &["image", "rm", &image]);
    }
}

/// The registry's program: this host's own, else unpacked from Debian's package.
fn program() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let installed = Path::new("/usr/bin/docker-registry");
        if installed.is_file() {
            return installed.to_owned();
        }
        // Kept, so that the next run of the tests downloads nothing.
        let folder = std::env::temp_dir().join("nightsweep-test-registry");
        let program = folder.join("root/usr/bin/docker-registry");
        if !program.is_file() {
            fs_err::create_dir_all(&folder).unwrap();
            download("docker-registry", &folder);
        }
        program
    })
}

/// Makes an image of one file named `what`.
pub(super) fn import(image: &str, content: &str) {
    let mut archive = tar::Builder::new(Vec::new());
    let mut header = tar::Header::new_gnu();
    header.set_size(content.len() as u64);
    header.set_mode(0o644);
    archive
        .append_data(&mut header, "what", content.as_bytes())
        .unwrap();
    let archive = archive.into_inner().unwrap();
    let mut import = Command::new("docker")
        .args(["import", "-", image])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    import.stdin.take().unwrap().write_all(&archive).unwrap();
    assert!(import.wait().unwrap().success());
}

/// Runs the Docker CLI; what it prints.
#[track_caller]
pub(super) fn docker(config: &Path, arguments: &[&str]) -> String {
    let output = Command::new("docker")
        .args(arguments)
        .env("DOCKER_CONFIG", config)
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "docker {arguments:?}: {stderr}");
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

/// Images that are removed at the end of a test, however that comes.
pub(super) struct Removed(pub(super) Vec<String>);

impl Drop for Removed {
    fn drop(&mut self) {
        for image in &self.0 {
            let _ = Command::new("docker")
                .args(["image", "rm", "--force", image])
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .status();
        }
    }
}
