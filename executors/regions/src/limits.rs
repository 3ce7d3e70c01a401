//! Limits of an executor's regions: the executor, the number of symbols, the sums.

/// What an executor's regions may be.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// The executor that runs the regions.
    pub executor: &'static str,
    /// Whose symbols are gathered.
    pub members: &'static str,
    /// The largest region, in symbols.
    pub symbols: usize,
    /// Whether rows of a view are added whose elements are scattered over memory. Kernels that read memory in order
    /// add them column by column, and a region would add them in another order.
    pub scattered_rows: bool,
    /// The regions that may hold sums over all rows, if any may.
    pub column_sums: Option<ColumnSums>,
}

/// The regions that sums over all rows are worth being in.
#[derive(Debug, Clone, Copy)]
pub struct ColumnSums {
    /// The fewest rows.
    pub rows: usize,
    /// The shortest and the longest row.
    pub widths: [usize; 2],
    /// The shortest row of a region that has no values of rows.
    pub shortest_alone: usize,
    /// The most such sums.
    pub most: usize,
}

impl ColumnSums {
    /// Whether regions over `iteration` may hold such sums, with values of rows or without.
    pub(crate) fn suit(&self, iteration: &[usize], with_rows: bool) -> bool {
        let [shortest, longest] = self.widths;
        let shortest = if with_rows { shortest } else { self.shortest_alone };
        iteration.split_last().is_some_and(|(width, outer)| {
            outer.iter().product::<usize>() >= self.rows && (shortest..=longest).contains(width)
        })
    }
}
