//! Files that models read and write: golden files of other projects, damaged files, processes killed while they write.

mod fuzzing;

mod checkpoint_fuzz;
mod checkpoint_kill;
mod files_fuzz;
mod folder_fuzz;
mod golden_files;
