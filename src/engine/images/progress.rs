//! What is told while images are pulled and built.

use std::time::Duration;

/// A step towards an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ImageProgress<'a> {
    /// Its layers are on the way.
    Pulling {
        /// The image.
        image: &'a str,
        /// Fetched so far. **Units**: bytes.
        done_bytes: u64,
        /// Of the layers whose size is known by now. **Units**: bytes.
        total_bytes: u64,
    },
    /// It is there.
    Pulled {
        /// The image.
        image: &'a str,
        /// Whether the tag stands for another content than before.
        is_new: bool,
        /// Fetched, as far as the engine told; it is silent on small layers. **Units**: bytes.
        fetched_bytes: u64,
    },
    /// Its build context is on the way to the engine.
    Sending {
        /// What it is called in messages.
        image: &'a str,
        /// Sent so far. **Units**: bytes.
        sent_bytes: u64,
        /// Of the files alone; their archive is a little larger. **Units**: bytes.
        total_bytes: u64,
    },
    /// The builder said a line.
    Building {
        /// What it is called in messages.
        image: &'a str,
        /// The line.
        line: &'a str,
    },
    /// It is built.
    Built {
        /// What it is called in messages.
        image: &'a str,
        /// How long that took.
        took: Duration,
    },
    /// An earlier run has built it from the very same.
    BuiltBefore {
        /// What it is called in messages.
        image: &'a str,
    },
}

/// Who is told; called often, and from several tasks.
pub type ProgressSink<'a> = &'a (dyn Fn(ImageProgress<'_>) + Send + Sync);
