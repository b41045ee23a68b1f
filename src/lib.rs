//! nightsweep.
