//! `blkio_config`: weights and limits of block devices.
//!
//! Pure.

use indexmap::IndexMap;

use super::field::Field;
use super::model::BlockIo;
use super::notes::Notes;

/// What an engine takes. **Source**: Docker Engine, "range of blkio weight is from 10 to 1000".
const WEIGHTS: std::ops::RangeInclusive<i64> = 10..=1000;

const WEIGHT_RULE: &str =
    "a kernel without a scheduler that knows weights drops it, and the engine with it";

/// Reads the key.
pub(super) fn read(root: &Field<'_>, notes: &mut Notes) -> Option<BlockIo> {
    let config = root.get("blkio_config")?;
    let mut block_io = BlockIo::default();
    for field in config.entries(notes) {
        match field.key() {
            "weight" => {
                block_io.weight = weight(&field, notes);
                notes.rule(WEIGHT_RULE, field.to_string());
            }
            "weight_device" => {
                block_io.weight_device = by_path(&field, "weight", notes, weight);
                notes.rule(WEIGHT_RULE, field.to_string());
            }
            "device_read_bps" => block_io.device_read_bps = by_path(&field, "rate", notes, bytes),
            "device_write_bps" => block_io.device_write_bps = by_path(&field, "rate", notes, bytes),
            "device_read_iops" => block_io.device_read_iops = by_path(&field, "rate", notes, count),
            "device_write_iops" => {
                block_io.device_write_iops = by_path(&field, "rate", notes, count);
            }
            _ => field.unknown(
                &[
                    "weight",
                    "weight_device",
                    "device_read_bps",
                    "device_read_iops",
                    "device_write_bps",
                    "device_write_iops",
                ],
                notes,
            ),
        }
    }
    Some(block_io)
}

/// `[{path, rate}, ...]`; a later item wins over an earlier one of the same device.
fn by_path<T>(
    list: &Field<'_>,
    key: &str,
    notes: &mut Notes,
    read: fn(&Field<'_>, &mut Notes) -> Option<T>,
) -> IndexMap<String, T> {
    let mut values = IndexMap::new();
    for item in list.items(notes) {
        item.check_keys(&["path", key], notes);
        let path = item.get("path").and_then(|field| field.filled_text(notes));
        let value = item.get(key).and_then(|field| read(&field, notes));
        match (path, value) {
            (Some(path), Some(value)) => {
                values.insert(path, value);
            }
            _ if item.get("path").is_none() || item.get(key).is_none() => {
                item.problem(notes, format_args!("needs both `path` and `{key}`"));
            }
            _ => {}
        }
    }
    values
}

fn weight(field: &Field<'_>, notes: &mut Notes) -> Option<u16> {
    let weight = field.integer(notes)?;
    if !WEIGHTS.contains(&weight) {
        field.problem(
            notes,
            format_args!("`{weight}` is out of range (allowed: 10 to 1000)"),
        );
        return None;
    }
    u16::try_from(weight).ok()
}

fn bytes(field: &Field<'_>, notes: &mut Notes) -> Option<u64> {
    positive(field, field.bytes(notes)?, notes)
}

fn count(field: &Field<'_>, notes: &mut Notes) -> Option<u64> {
    let count = field.integer(notes)?;
    positive(field, u64::try_from(count).unwrap_or(0), notes)
}

fn positive(field: &Field<'_>, rate: u64, notes: &mut Notes) -> Option<u64> {
    if rate == 0 {
        field.problem(notes, "must be more than 0");
        return None;
    }
    Some(rate)
}
