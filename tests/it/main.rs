//! The one integration binary: linking once is what keeps the suite quick.
#![expect(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    clippy::float_cmp,
    reason = "tests may stop at the first surprise, read files plainly and count in floats"
)]

#[cfg(feature = "corpus-tests")]
#[expect(clippy::print_stdout, reason = "its table is for people")]
mod corpus;
#[cfg(feature = "docker-tests")]
mod docker;
mod goldens;
mod inputs;
#[cfg(feature = "k6-tests")]
mod k6;
mod layering;
mod load;
mod readme;
mod sample;
mod stack;
mod support;
