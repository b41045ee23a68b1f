//! Devices, GPUs and block devices of a service in the engine's own form. Pure.
//!
//! Read `requests.rs` first, which puts them into a container's body.

use std::collections::HashMap;

use bollard::models::{
    DeviceMapping, DeviceRequest as GpuRequest, HostConfig, ResourcesBlkioWeightDevice,
    ResourcesUlimits, ThrottleDevice,
};
use indexmap::IndexMap;

use super::requests::{RequestError, bytes};
use crate::stack::{BlockIo, Device, DeviceRequest, Service};

/// Adds what a service says of block devices.
pub(super) fn add_block_io(
    host: HostConfig,
    block_io: Option<&BlockIo>,
) -> Result<HostConfig, RequestError> {
    let Some(block_io) = block_io else {
        return Ok(host);
    };
    let weights = block_io.weight_device.iter();
    let weights: Vec<_> = weights
        .map(|(path, weight)| ResourcesBlkioWeightDevice {
            path: Some(path.clone()),
            weight: Some(usize::from(*weight)),
        })
        .collect();
    Ok(HostConfig {
        blkio_weight: block_io.weight,
        blkio_weight_device: Some(weights).filter(|list| !list.is_empty()),
        blkio_device_read_bps: throttles("device_read_bps", &block_io.device_read_bps)?,
        blkio_device_write_bps: throttles("device_write_bps", &block_io.device_write_bps)?,
        blkio_device_read_iops: throttles("device_read_iops", &block_io.device_read_iops)?,
        blkio_device_write_iops: throttles("device_write_iops", &block_io.device_write_iops)?,
        ..host
    })
}

fn throttles(
    key: &'static str,
    rates: &IndexMap<String, u64>,
) -> Result<Option<Vec<ThrottleDevice>>, RequestError> {
    let one = |(path, rate): (&String, &u64)| {
        Ok(ThrottleDevice {
            path: Some(path.clone()),
            rate: bytes(key, Some(*rate))?,
        })
    };
    let list: Vec<_> = rates.iter().map(one).collect::<Result<_, RequestError>>()?;
    Ok(Some(list).filter(|list| !list.is_empty()))
}

/// A request to a driver: all capabilities at once, which is one list of the lists
/// of alternatives that the API takes.
pub(super) fn gpu(request: &DeviceRequest) -> GpuRequest {
    GpuRequest {
        driver: request.driver.clone(),
        count: request.count,
        device_ids: Some(request.device_ids.clone()).filter(|ids| !ids.is_empty()),
        capabilities: Some(vec![request.capabilities.clone()]),
        options: Some(
            request
                .options
                .clone()
                .into_iter()
                .collect::<HashMap<_, _>>(),
        )
        .filter(|options| !options.is_empty()),
    }
}

/// A device file.
pub(super) fn device(device: &Device) -> DeviceMapping {
    DeviceMapping {
        path_on_host: Some(device.source.clone()),
        path_in_container: Some(device.target.clone()),
        cgroup_permissions: Some(device.permissions.clone()),
    }
}

/// Resource limits of processes.
pub(super) fn ulimits(service: &Service) -> Vec<ResourcesUlimits> {
    service
        .ulimits
        .iter()
        .map(|(name, (soft, hard))| ResourcesUlimits {
            name: Some(name.clone()),
            soft: Some(*soft),
            hard: Some(*hard),
        })
        .collect()
}
