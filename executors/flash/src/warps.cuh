// The rows of a block whose warps multiply by themselves: it is WARPS warps, and goes over the other side's rows by
// tiles of TILE.
constexpr int THREADS = 32 * WARPS;
constexpr int OWN = 16 * WARPS;
