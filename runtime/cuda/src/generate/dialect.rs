//! The language that kernels are printed in. What a kernel computes, and by which threads, is decided by the other
//! files; a second language is a file beside `cuda_cpp`, which implements [`Dialect`].

use std::fmt::Debug;

use fulgurite_kernels::scalar::ScalarOp;
use fulgurite_kernels::tile::Class;
use fulgurite_kernels::{DType, Reduction};

/// Makes the printer of one kernel, which remembers what its source includes.
pub(super) type MakeDialect = fn() -> Box<dyn Dialect>;

/// A language of kernels, of C's family: expressions with C's operators, statements, braces.
pub(super) trait Dialect: Debug {
    /// The lines that include the headers.
    fn text(&self) -> String;

    // === Memory ===

    /// The type of `count` elements that are read or written at once.
    fn pack(&mut self, element: &str, count: usize) -> String;

    /// `count` elements from `from` on, or, where fewer may be left, as many as there are.
    fn load(&mut self, count: usize, from: &str, left: Option<&str>) -> String;

    /// The reverse of [`Dialect::load`].
    fn store(&mut self, count: usize, to: &str, pack: &str, left: Option<&str>) -> String;

    /// Starts the copy of so many bytes to shared memory.
    fn fetch(&mut self, bytes: usize, to: &str, from: &str) -> String;

    // === Conversions ===

    /// An element as stored in memory, in its class.
    fn widen(&mut self, dtype: DType, element: &str) -> String;

    /// A value of the class of `dtype` as stored in memory: rounded, or wrapped.
    fn narrow(&mut self, dtype: DType, value: &str) -> String;

    /// A value of one class in another.
    fn cast(&mut self, from: Class, to: Class, value: &str) -> String;

    // === Arithmetic ===

    /// Integer arithmetic that wraps.
    fn wrapping(&mut self, operator: char, x: &str, y: &str) -> String;

    fn integer_absolute(&mut self, x: &str) -> String;

    fn integer_quotient(&mut self, x: &str, y: &str) -> String;

    fn integer_power(&mut self, x: &str, y: &str) -> String;

    /// A number that the compiler must not look into.
    fn opaque(&mut self, x: &str) -> String;

    /// A power whose exponent is not known beforehand. The bits are those of one that is.
    fn power(&mut self, x: &str, y: &str) -> String;

    /// e^x, as exact as elements of 16 bits can tell.
    fn coarse_exponential(&mut self, x: &str) -> String;

    /// The remainder with the divisor's sign.
    fn remainder(&mut self, x: &str, y: &str) -> String;

    /// -1, 0 or 1.
    fn sign(&mut self, x: &str) -> String;

    /// The larger or the smaller of two.
    fn extremum(&mut self, larger: bool, x: &str, y: &str) -> String;

    // === Reductions ===

    /// Two parts of a reduction, the earlier first.
    fn combine(&mut self, reduction: Reduction, class: Class, x: &str, y: &str) -> String;

    /// The total of so many lanes beside each other, the same in each.
    fn of_lanes(&mut self, reduction: Reduction, lanes: usize, x: &str) -> String;

    /// The total of a block of so many warps, the same in each thread. `partial` is used once.
    fn of_block(&mut self, reduction: Reduction, warps: usize, x: &str, partial: &str) -> String;

    /// Writes the total of each warp, the first half of [`Dialect::of_block`].
    fn of_warp(&mut self, reduction: Reduction, x: &str, partial: &str) -> String;

    /// The total of what so many warps have written before a barrier, the same in each thread.
    fn of_warps(&mut self, reduction: Reduction, warps: usize, partial: &str) -> String;

    /// What [`Dialect::of_cluster`] and the barrier of a cluster need.
    fn clusters(&mut self);

    /// The total of a cluster of so many blocks, in the order of the blocks, the same in each thread; `x` is the
    /// block's.
    fn of_cluster(&mut self, reduction: Reduction, blocks: usize, x: &str, partial: &str) -> String;

    // === Words ===

    /// The type that a class is computed in.
    fn class_type(&self, class: Class) -> &'static str;

    /// The type that elements have in memory.
    fn stored_type(&self, dtype: DType) -> &'static str;

    /// `number` in `class`, as the host's arithmetic has it.
    fn literal(&self, class: Class, number: f64) -> String;

    /// A function of one floating-point number or boolean that the language itself has.
    fn function(&self, op: ScalarOp, class: Class, x: &str) -> String;

    /// An angle of two floating-point numbers, or an operation on the bits of two integers.
    fn binary_function(&mut self, op: ScalarOp, class: Class, x: &str, y: &str) -> String;

    /// A power by the language's own function.
    fn known_power(&self, class: Class, x: &str, y: &str) -> String;

    // === Kernels ===

    /// What is before the body of a kernel for blocks of so many threads, of which `resident` are to be on a
    /// multiprocessor at a time, if that is told.
    fn head(&self, name: &str, parameters: &[String], threads: usize, resident: Option<usize>) -> String;

    /// The same of a kernel for many tensors: it has `pointers`, whose `members` are given, and `table`, with a count
    /// and a first block for each tensor.
    fn head_of_many(&self, name: &str, members: &[String], tensors: usize, count: &str, threads: usize) -> String;

    /// A pointer to elements in the device's memory.
    fn pointer(&self, dtype: DType, name: &str, is_read: bool) -> String;

    /// The number of the thread in its block.
    fn thread(&self) -> &'static str;

    /// The number of the block.
    fn block(&self) -> &'static str;

    /// How many blocks there are.
    fn blocks(&self) -> &'static str;

    /// A variable in the memory that a block shares.
    fn shared(&self, variable: &str) -> String;

    /// The memory that a block shares and whose size the launch says, as bytes called `shared`.
    fn launched_shared(&self, alignment: usize) -> String;

    /// A place in it, as elements.
    fn place_in_shared(&self, kind: &str, offset: usize) -> String;

    /// Waits for all threads of a block.
    fn barrier(&self) -> &'static str;

    /// Waits for all threads of a warp.
    fn warp_barrier(&self) -> &'static str;

    /// Says that the block has come to a point, to the others of its cluster.
    fn cluster_arrive(&self) -> &'static str;

    /// Waits until all blocks of the cluster have said so.
    fn cluster_wait(&self) -> &'static str;

    /// Waits for what [`Dialect::fetch`] has started.
    fn await_fetched(&self) -> &'static str;

    /// The line before a loop that is unrolled, or that is not to be.
    fn unroll(&self, unrolled: bool) -> &'static str;
}

/// The result of reducing nothing.
pub(super) fn start_of(reduction: Reduction, class: Class) -> f64 {
    match (reduction, class.is_floating()) {
        (Reduction::Sum, _) => 0.0,
        (Reduction::Product, _) => 1.0,
        (Reduction::Max, true) => f64::NEG_INFINITY,
        (Reduction::Min, true) => f64::INFINITY,
        (Reduction::Max, false) => i64::MIN as f64,
        (Reduction::Min, false) => i64::MAX as f64,
    }
}
