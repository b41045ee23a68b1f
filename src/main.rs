//! nightsweep.
fn main() {}
