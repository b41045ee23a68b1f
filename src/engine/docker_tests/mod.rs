//! The whole of this module against a real Docker Engine.
//!
//! With the feature on and no engine they fail; with it off they do not exist.
//! They need no image registry: the image is one static busybox, made once from
//! a Debian package. Every test removes what it made, also when it fails.

mod failure;
mod life;
mod rare;
mod replicas;
mod support;
