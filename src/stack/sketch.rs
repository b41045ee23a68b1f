//! A first look at a Compose file, for a starter matrix.
//!
//! Tolerant: variables without a value are empty, and services that could not
//! be launched are listed all the same.

use std::path::Path;

use super::assemble::Assembly;
use super::field::Field;
use super::files::ComposeFiles;
use super::notes::Notes;
use super::resolve::ResolveRequest;
use crate::problem::Problems;

/// Image names that databases have, as the last part of the path.
const DATABASES: [&str; 18] = [
    "postgres",
    "postgis",
    "timescaledb",
    "pgvector",
    "mysql",
    "mariadb",
    "mongo",
    "mongodb",
    "mssql",
    "oracle",
    "cassandra",
    "cockroach",
    "clickhouse",
    "elasticsearch",
    "opensearch",
    "neo4j",
    "couchdb",
    "aidboxdb",
];

/// What can be told of a service without launching it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServiceSketch {
    /// Name in the file.
    pub name: String,
    /// Image, where one is named.
    pub image: Option<String>,
    /// Ports inside the container that are published or exposed, published ones first.
    pub container_ports: Vec<u16>,
    /// Whether the file gives it a healthcheck.
    pub has_healthcheck: bool,
    /// Whether its image is that of a well-known database.
    pub looks_like_database: bool,
    /// Services it waits for.
    pub depends_on: Vec<String>,
}

/// Looks at the services of a file.
///
/// **Errors**: only where the file cannot be read or is not valid YAML.
pub fn sketch(path: &Path) -> Result<Vec<ServiceSketch>, Problems> {
    let files = ComposeFiles::read(&[path.to_owned()])?;
    let (cell, environment) = Default::default();
    let request = ResolveRequest {
        cell: &cell,
        environment: &environment,
        roots: &[],
        profiles: &[],
        shared: &[],
    };
    let mut ignored = Notes::default();
    let assembly = Assembly::new(&files, &request, &mut ignored);
    let mut sketches = Vec::new();
    for name in files.service_names() {
        if let Some(element) = assembly.element("services", &name, &mut ignored) {
            let root = Field::root(&name, &element.node);
            sketches.push(sketch_service(&name, &root, &mut ignored));
        }
    }
    Ok(sketches)
}

fn sketch_service(name: &str, root: &Field<'_>, ignored: &mut Notes) -> ServiceSketch {
    let image = root
        .get("image")
        .and_then(|field| field.filled_text(ignored));
    let mut container_ports = Vec::new();
    for key in ["ports", "expose"] {
        let Some(field) = root.get(key) else { continue };
        for item in field.items(ignored) {
            let text = match item.node.as_text() {
                Some(text) => Some(text.to_owned()),
                None => item.get("target").and_then(|field| field.text(ignored)),
            };
            if let Some(port) = text.as_deref().and_then(container_port)
                && !container_ports.contains(&port)
            {
                container_ports.push(port);
            }
        }
    }
    let depends_on = super::dependencies::read(root, ignored);
    ServiceSketch {
        name: name.to_owned(),
        looks_like_database: image.as_deref().is_some_and(looks_like_database),
        image,
        container_ports,
        has_healthcheck: root.get("healthcheck").is_some(),
        depends_on: depends_on.into_keys().collect(),
    }
}

/// `[[ip:]published:]container[/protocol]`; of a range, the first.
fn container_port(text: &str) -> Option<u16> {
    let without_protocol = text.split('/').next()?;
    let last = without_protocol.rsplit(':').next()?;
    last.split('-').next()?.trim().parse().ok()
}

fn looks_like_database(image: &str) -> bool {
    let path = image.split('@').next().unwrap_or(image);
    let last = path.rsplit('/').next().unwrap_or(path);
    let name = last.split(':').next().unwrap_or(last);
    let is_server_of = path.contains("mssql/server") || path.contains("/mssql");
    is_server_of
        || DATABASES
            .iter()
            .any(|known| name == *known || name.starts_with(&format!("{known}-")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn container_ports_are_found_in_every_form() {
        for (text, port) in [
            ("8080", Some(8080)),
            ("80:8080", Some(8080)),
            ("127.0.0.1:80:8080/tcp", Some(8080)),
            ("8000-8010:9000-9010", Some(9000)),
            (":8080", Some(8080)),
            ("", None),
            ("http", None),
        ] {
            assert_eq!(container_port(text), port, "{text}");
        }
    }

    #[test]
    fn databases_are_told_by_their_image() {
        for image in [
            "postgres",
            "postgres:17",
            "docker.io/library/mysql:8",
            "bitnami/mongodb",
            "x/mssql/server:2022",
        ] {
            assert!(looks_like_database(image), "{image}");
        }
        for image in ["nginx", "postgrest/postgrest", "prom/mysqld_exporter"] {
            assert!(!looks_like_database(image), "{image}");
        }
    }

    #[test]
    fn a_sketch_needs_no_values() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("compose.yaml");
        fs_err::write(
            &path,
            "services:\n  app:\n    image: app:${TAG:?needed}\n    ports: ['${P}:8080']\n    depends_on: [db]\n  db:\n    image: postgres\n    healthcheck: {test: pg_isready}\n    expose: [5432]\n",
        )
        .unwrap();
        let services = sketch(&path).unwrap();
        assert_eq!(services.len(), 2);
        assert_eq!(services[0].container_ports, [8080]);
        assert_eq!(services[0].depends_on, ["db"]);
        assert!(services[1].looks_like_database && services[1].has_healthcheck);
        assert_eq!(services[1].container_ports, [5432]);
    }
}
