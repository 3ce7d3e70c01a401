//! Prims: they do not decompose, and they are strict: equal shapes, equal element types.
