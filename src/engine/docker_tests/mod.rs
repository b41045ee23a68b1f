//! The whole of this module against a real Docker Engine.
//!
//! With the feature on and no engine they fail; with it off they do not exist.
//! They need no image registry: the image is one static busybox, made once from
//! a Debian package. Every test removes what it made, also when it fails.

mod failure;
mod hanging;
mod images;
mod life;
mod proxy;
mod rare;
mod registry;
mod replicas;
mod support;
