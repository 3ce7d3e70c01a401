//! Operators of placeholder_crate.

fulgurite::operator_files! {}
