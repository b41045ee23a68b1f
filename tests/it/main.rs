//! The one integration binary: linking once is what keeps the suite quick.
#![expect(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    clippy::float_cmp,
    reason = "tests may stop at the first surprise, read files plainly, and count in floats"
)]

mod corpus;
#[cfg(feature = "docker-tests")]
mod docker;
mod inputs;
mod layering;
mod readme;
mod stack;
mod support;
