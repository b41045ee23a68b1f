pub(super) mod nothing {}
