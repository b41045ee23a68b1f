//! What containers are attached to: mounts, networks, volumes.
//!
//! Field names are those of the Compose specification, as in `model.rs`.

use std::path::PathBuf;

use indexmap::IndexMap;
use serde::Serialize;

use super::model::is_off;

/// Something mounted into a container.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Mount {
    /// Where it is seen inside the container.
    pub target: String,
    /// What it is.
    #[serde(flatten)]
    pub source: MountSource,
    /// Whether the container may only read it.
    pub read_only: bool,
}

/// What a mount shows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum MountSource {
    /// A named volume of the stack; the trial gets its own.
    Volume {
        /// Key in [`Stack::volumes`](super::Stack::volumes).
        source: String,
        /// Whether what the image has there is not copied into a new volume.
        #[serde(skip_serializing_if = "is_off")]
        nocopy: bool,
    },
    /// A volume without a name, new for each container.
    Anonymous,
    /// A file or folder of the host. Always read only unless the user shares it.
    Bind {
        /// Absolute path on the host.
        source: PathBuf,
    },
    /// A file system in memory.
    Tmpfs {
        /// Largest size; `None` is the kernel's default. **Units**: bytes.
        size: Option<u64>,
        /// Permission bits of its root.
        mode: Option<u32>,
        /// Further mount options, such as `exec` or `uid=1000`.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        options: Vec<String>,
    },
    /// A file with the content of a config or secret that stands in no file.
    Content {
        /// What is in it.
        content: String,
        /// Permission bits; `None` is 0444.
        #[serde(skip_serializing_if = "Option::is_none")]
        mode: Option<u32>,
        /// Owner; `None` is root.
        #[serde(skip_serializing_if = "Option::is_none")]
        uid: Option<String>,
        /// Group; `None` is root's.
        #[serde(skip_serializing_if = "Option::is_none")]
        gid: Option<String>,
    },
}

/// How a service takes part in a network.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Attachment {
    /// Names it answers to there: always its service name, then `container_name` and aliases.
    pub aliases: Vec<String>,
    /// Fixed IPv4 address, where the file asks for one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ipv4_address: Option<String>,
    /// Fixed IPv6 address, where the file asks for one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ipv6_address: Option<String>,
    /// Hardware address there, where the file asks for one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mac_address: Option<String>,
    /// Further addresses that hold on the link only.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub link_local_ips: Vec<String>,
    /// Options of the network's driver for this service.
    #[serde(skip_serializing_if = "IndexMap::is_empty")]
    pub driver_opts: IndexMap<String, String>,
}

/// A network of the stack.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Network {
    /// Engine-wide name of a network of the user's, which they listed as shared:
    /// joined as it is, never created and never removed. `None` is the trial's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub external: Option<String>,
    /// Whether it has no way out of the host.
    pub internal: bool,
    /// Whether its members have IPv6 addresses too.
    #[serde(skip_serializing_if = "is_off")]
    pub enable_ipv6: bool,
    /// Address ranges, where the file fixes them.
    pub ipam: Vec<AddressRange>,
    /// Driver options.
    pub driver_opts: IndexMap<String, String>,
}

/// A range of addresses of a network.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct AddressRange {
    /// The range, in CIDR form.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subnet: Option<String>,
    /// The part of it that containers get, in CIDR form.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ip_range: Option<String>,
    /// Address of the way out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gateway: Option<String>,
    /// Addresses that are taken, by name.
    #[serde(skip_serializing_if = "IndexMap::is_empty")]
    pub aux_addresses: IndexMap<String, String>,
}

/// A named volume of the stack.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Volume {
    /// Engine-wide name of a volume of the user's, which they listed as shared:
    /// mounted as it is, never created and never removed. `None` is the trial's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub external: Option<String>,
    /// Driver options, for volumes that are really tmpfs or the like.
    pub driver_opts: IndexMap<String, String>,
}
