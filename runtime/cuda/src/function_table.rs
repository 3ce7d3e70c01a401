//! Tables of the functions of a library that no bindings open.

/// Declares the table `Functions`, by the functions' own names, and how it is read from a library.
macro_rules! functions {
    ($($name:ident($($argument:ident: $type:ty),* $(,)?) $(-> $result:ty)?;)*) => {
        /// The functions, by their own names.
        #[allow(non_snake_case, reason = "the library's names")]
        #[derive(Debug, Clone, Copy)]
        pub(crate) struct Functions {
            $(pub(super) $name: unsafe extern "C" fn($($argument: $type),*) $(-> $result)?,)*
        }

        impl Functions {
            /// The functions of a library; the error names the one that is missing.
            pub(crate) fn of(library: &'static libloading::Library) -> Result<Functions, &'static str> {
                Ok(Functions {
                    // SAFETY: the signatures are those of the interface's reference, for every version that is used.
                    $($name: *unsafe { library.get(stringify!($name).as_bytes()) }.map_err(|_| stringify!($name))?,)*
                })
            }
        }
    };
}
pub(super) use functions;
