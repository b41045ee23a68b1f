//! The SQL: current rows, history rows and index rows, always in one transaction.
//!
//! Invariant: a write leaves all three tables changed or none. Nothing here decides what an
//! answer looks like; that is [`crate::routes`]. The body of every version is kept once, in
//! the history row, deflated by this process, as several FHIR servers do; the current row
//! says which version is in force. Searches go through the index table alone.

use std::io::{self, Read, Write};

use flate2::Compression;
use flate2::read::ZlibDecoder;
use flate2::write::ZlibEncoder;
use postgres::error::SqlState;
use postgres::{Client, Statement};

use crate::db::Connection;
use crate::resource::Resource;

/// Most entries a search returns.
pub(crate) const SEARCH_LIMIT: i64 = 50;

const SCHEMA: &str = "
BEGIN;
-- Several instances may start at once on one database.
SELECT pg_advisory_xact_lock(726873);
CREATE TABLE IF NOT EXISTS resource (
    type text NOT NULL,
    id text NOT NULL,
    version bigint NOT NULL,
    updated timestamptz NOT NULL,
    is_deleted boolean NOT NULL,
    PRIMARY KEY (type, id)
);
CREATE TABLE IF NOT EXISTS resource_history (
    type text NOT NULL,
    id text NOT NULL,
    version bigint NOT NULL,
    updated timestamptz NOT NULL,
    method text NOT NULL,
    -- zlib; absent where the version is a deletion.
    body bytea,
    PRIMARY KEY (type, id, version)
);
CREATE TABLE IF NOT EXISTS search_index (
    type text NOT NULL,
    parameter text NOT NULL,
    value text NOT NULL,
    id text NOT NULL,
    PRIMARY KEY (type, parameter, value, id)
);
CREATE INDEX IF NOT EXISTS search_index_of ON search_index (type, id);
COMMIT;";

/// Statements of one connection.
pub(crate) struct Statements {
    insert: Statement,
    update: Statement,
    lock: Statement,
    history: Statement,
    add_index: Statement,
    drop_index: Statement,
    read: Statement,
    search: Statement,
    ping: Statement,
}

impl Statements {
    /// Prepares all. **Errors**: the connection, or a table is missing.
    pub(crate) fn prepare(client: &mut Client) -> Result<Self, postgres::Error> {
        Ok(Self {
            insert: client.prepare(
                "INSERT INTO resource (type, id, version, updated, is_deleted)
                 VALUES ($1, $2, $3, $4::text::timestamptz, $5)",
            )?,
            update: client.prepare(
                "UPDATE resource SET version = $3, updated = $4::text::timestamptz, is_deleted = $5
                 WHERE type = $1 AND id = $2",
            )?,
            lock: client.prepare(
                "SELECT version, is_deleted FROM resource WHERE type = $1 AND id = $2 FOR UPDATE",
            )?,
            history: client.prepare(
                "INSERT INTO resource_history (type, id, version, updated, method, body)
                 VALUES ($1, $2, $3, $4::text::timestamptz, $5, $6)",
            )?,
            add_index: client.prepare(
                "INSERT INTO search_index (type, id, parameter, value)
                 SELECT $1, $2, parameter, value FROM unnest($3::text[], $4::text[]) AS pair (parameter, value)",
            )?,
            drop_index: client.prepare("DELETE FROM search_index WHERE type = $1 AND id = $2")?,
            read: client.prepare(
                "SELECT h.version, h.body FROM resource r JOIN resource_history h USING (type, id, version)
                 WHERE r.type = $1 AND r.id = $2",
            )?,
            search: client.prepare(
                "WITH hit AS MATERIALIZED (
                     SELECT id FROM search_index WHERE type = $1 AND parameter = $2 AND value = $3
                 )
                 SELECT h.body, (SELECT count(*) FROM hit)
                 FROM (SELECT id FROM hit ORDER BY id LIMIT $4) AS page
                 JOIN resource r ON r.type = $1 AND r.id = page.id
                 JOIN resource_history h ON h.type = $1 AND h.id = r.id AND h.version = r.version
                 WHERE h.body IS NOT NULL
                 ORDER BY h.id",
            )?,
            ping: client.prepare("SELECT count(*) FROM resource WHERE type = ''")?,
        })
    }
}

/// What an operation on the store came to, other than success.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StoreError {
    /// There never was such a resource.
    #[error("it does not exist")]
    Unknown,
    /// It was deleted.
    #[error("it was deleted")]
    Gone {
        /// The version that is the deletion.
        version: i64,
    },
    /// `If-Match` named another version.
    #[error("the current version is {}", .current.map_or("none".to_owned(), |version| version.to_string()))]
    VersionMismatch {
        /// The version in force, if there is one.
        current: Option<i64>,
    },
    /// Another request created the same id at the same time.
    #[error("another request has just created it")]
    Conflict,
    /// PostgreSQL cannot keep the data, for example a NUL character in a text.
    #[error("the database cannot store this")]
    Unstorable(#[source] postgres::Error),
    /// What is stored is no body of ours.
    #[error("the stored body is damaged")]
    Damaged(#[source] io::Error),
    /// The connection was lost or the server refused.
    #[error("the database failed")]
    Database(#[source] postgres::Error),
}

impl From<postgres::Error> for StoreError {
    fn from(error: postgres::Error) -> Self {
        match error.code() {
            Some(code) if *code == SqlState::UNIQUE_VIOLATION => Self::Conflict,
            // Class 22: data exceptions.
            Some(code) if code.code().starts_with("22") => Self::Unstorable(error),
            _ => Self::Database(error),
        }
    }
}

/// The result of a write.
#[derive(Debug)]
pub(crate) struct Written {
    /// The new version.
    pub(crate) version: i64,
    /// The resource as stored; empty after a delete.
    pub(crate) body: String,
    /// There was no such resource before, or it had been deleted.
    pub(crate) is_new: bool,
}

/// Creates what is missing of the schema; safe to run from several processes.
pub(crate) fn create_schema(client: &mut Client) -> Result<(), postgres::Error> {
    client.batch_execute(SCHEMA)
}

/// The lightest query that needs both the server and the schema.
pub(crate) fn ping(connection: &mut Connection) -> Result<(), postgres::Error> {
    connection
        .client
        .query_one(&connection.statements.ping, &[])
        .map(|_| ())
}

/// Stores a new resource under a new id.
pub(crate) fn create(
    connection: &mut Connection,
    key: Key<'_>,
    resource: &Resource,
    now: &str,
) -> Result<Written, StoreError> {
    let Connection {
        client, statements, ..
    } = connection;
    let body = resource.stamped(key.id, 1, now);
    let packed = deflated(&body);
    let mut transaction = client.transaction()?;
    transaction.execute(
        &statements.insert,
        &[&key.kind, &key.id, &1_i64, &now, &false],
    )?;
    transaction.execute(
        &statements.history,
        &[&key.kind, &key.id, &1_i64, &now, &"POST", &packed],
    )?;
    add_index(&mut transaction, statements, key, resource)?;
    transaction.commit()?;
    Ok(Written {
        version: 1,
        body,
        is_new: true,
    })
}

/// Replaces a resource, or creates it under the id the client chose.
pub(crate) fn update(
    connection: &mut Connection,
    key: Key<'_>,
    if_match: Option<i64>,
    resource: &Resource,
    now: &str,
) -> Result<Written, StoreError> {
    let Connection {
        client, statements, ..
    } = connection;
    let mut transaction = client.transaction()?;
    let current = lock(&mut transaction, statements, key)?;
    let live = current
        .filter(|current| !current.is_deleted)
        .map(|current| current.version);
    if if_match.is_some() && if_match != live {
        return Err(StoreError::VersionMismatch { current: live });
    }
    let version = current.map_or(1, |current| current.version + 1);
    let body = resource.stamped(key.id, version, now);
    let packed = deflated(&body);
    let write = if current.is_some() {
        &statements.update
    } else {
        &statements.insert
    };
    transaction.execute(write, &[&key.kind, &key.id, &version, &now, &false])?;
    transaction.execute(
        &statements.history,
        &[&key.kind, &key.id, &version, &now, &"PUT", &packed],
    )?;
    if live.is_some() {
        transaction.execute(&statements.drop_index, &[&key.kind, &key.id])?;
    }
    add_index(&mut transaction, statements, key, resource)?;
    transaction.commit()?;
    Ok(Written {
        version,
        body,
        is_new: live.is_none(),
    })
}

/// Deletes a resource; deleting a deleted one changes nothing and succeeds, as FHIR has it.
pub(crate) fn delete(
    connection: &mut Connection,
    key: Key<'_>,
    if_match: Option<i64>,
    now: &str,
) -> Result<Written, StoreError> {
    let Connection {
        client, statements, ..
    } = connection;
    let mut transaction = client.transaction()?;
    let current = lock(&mut transaction, statements, key)?.ok_or(StoreError::Unknown)?;
    if current.is_deleted {
        return Ok(Written {
            version: current.version,
            body: String::new(),
            is_new: false,
        });
    }
    if if_match.is_some_and(|version| version != current.version) {
        return Err(StoreError::VersionMismatch {
            current: Some(current.version),
        });
    }
    let version = current.version + 1;
    let nothing = None::<&[u8]>;
    transaction.execute(
        &statements.update,
        &[&key.kind, &key.id, &version, &now, &true],
    )?;
    transaction.execute(
        &statements.history,
        &[&key.kind, &key.id, &version, &now, &"DELETE", &nothing],
    )?;
    transaction.execute(&statements.drop_index, &[&key.kind, &key.id])?;
    transaction.commit()?;
    Ok(Written {
        version,
        body: String::new(),
        is_new: false,
    })
}

/// The current version and body.
pub(crate) fn read(connection: &mut Connection, key: Key<'_>) -> Result<(i64, String), StoreError> {
    let row = connection
        .client
        .query_opt(&connection.statements.read, &[&key.kind, &key.id])?
        .ok_or(StoreError::Unknown)?;
    let version = row.get(0);
    match row.get(1) {
        Some(packed) => Ok((version, inflated(packed)?)),
        None => Err(StoreError::Gone { version }),
    }
}

/// How many resources match, and the first of them in order of id.
pub(crate) fn search(
    connection: &mut Connection,
    kind: &str,
    parameter: &str,
    value: &str,
) -> Result<(i64, Vec<String>), StoreError> {
    let rows = connection.client.query(
        &connection.statements.search,
        &[&kind, &parameter, &value, &SEARCH_LIMIT],
    )?;
    let total = rows.first().map_or(0, |row| row.get(1));
    let bodies = rows
        .iter()
        .map(|row| inflated(row.get(0)))
        .collect::<Result<_, _>>()?;
    Ok((total, bodies))
}

/// Type and id of one resource.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Key<'a> {
    /// The resource type.
    pub(crate) kind: &'a str,
    /// The logical id.
    pub(crate) id: &'a str,
}

#[derive(Clone, Copy)]
struct Current {
    version: i64,
    is_deleted: bool,
}

fn lock(
    transaction: &mut postgres::Transaction<'_>,
    statements: &Statements,
    key: Key<'_>,
) -> Result<Option<Current>, postgres::Error> {
    let row = transaction.query_opt(&statements.lock, &[&key.kind, &key.id])?;
    Ok(row.map(|row| Current {
        version: row.get(0),
        is_deleted: row.get(1),
    }))
}

fn add_index(
    transaction: &mut postgres::Transaction<'_>,
    statements: &Statements,
    key: Key<'_>,
    resource: &Resource,
) -> Result<(), postgres::Error> {
    let (parameters, values): (Vec<&str>, Vec<String>) = resource.index().into_iter().unzip();
    if !parameters.is_empty() {
        transaction.execute(
            &statements.add_index,
            &[&key.kind, &key.id, &parameters, &values],
        )?;
    }
    Ok(())
}

fn deflated(body: &str) -> Vec<u8> {
    let mut encoder = ZlibEncoder::new(Vec::with_capacity(body.len() / 2), Compression::default());
    encoder
        .write_all(body.as_bytes())
        .and_then(|()| encoder.finish())
        .expect("writing to memory cannot fail")
}

fn inflated(packed: &[u8]) -> Result<String, StoreError> {
    let mut body = String::with_capacity(packed.len() * 4);
    ZlibDecoder::new(packed)
        .read_to_string(&mut body)
        .map_err(StoreError::Damaged)?;
    Ok(body)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_comes_back_as_it_went_in() {
        let body = r#"{"resourceType":"Patient","name":"ä"}"#.repeat(50);
        let packed = deflated(&body);
        assert!(packed.len() < body.len() / 4);
        assert_eq!(inflated(&packed).unwrap(), body);
        assert!(matches!(inflated(b"no zlib"), Err(StoreError::Damaged(_))));
    }
}
