//! Identities that the factors of each matrix satisfy.

use super::*;

/// Numbers between -1 and 1.
fn numbers(count: usize, seed: u64) -> Vec<f64> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 11) as f64 / (1u64 << 52) as f64 - 1.0
    };
    (0..count).map(|_| next()).collect()
}

fn product(a: &[f64], b: &[f64], [m, k, n]: [usize; 3]) -> Vec<f64> {
    let element = |i: usize, j: usize| (0..k).map(|l| a[i * k + l] * b[l * n + j]).sum::<f64>();
    (0..m * n).map(|at| element(at / n, at % n)).collect()
}

fn transposed(a: &[f64], [m, n]: [usize; 2]) -> Vec<f64> {
    (0..m * n).map(|at| a[at % m * n + at / m]).collect()
}

#[track_caller]
fn near(a: &[f64], b: &[f64]) {
    assert_eq!(a.len(), b.len());
    let size = b.iter().fold(1.0, |most: f64, x| most.max(x.abs()));
    for (i, (x, y)) in a.iter().zip(b).enumerate() {
        assert!((x - y).abs() <= 1e-12 * size, "element {i}: {x}, expected {y}\n{a:?}\n{b:?}");
    }
}

fn unit(n: usize) -> Vec<f64> {
    (0..n * n).map(|at| f64::from(u8::from(at / n == at % n))).collect()
}

/// An operand of a shape.
struct Given(Vec<f64>, Vec<usize>, Vec<isize>);

impl Given {
    fn new(data: &[f64], shape: &[usize]) -> Given {
        Given(data.to_vec(), shape.to_vec(), contiguous_strides(shape))
    }
    fn view(&self) -> TensorRef<'_> {
        TensorRef::from_slice(&self.0, &self.1, &self.2)
    }
}

/// A result of a shape.
struct Out<T>(Vec<T>, Vec<usize>, Vec<isize>);

impl<T: Element + Default> Out<T> {
    fn new(shape: &[usize]) -> Out<T> {
        Out(vec![T::default(); shape.iter().product()], shape.to_vec(), contiguous_strides(shape))
    }
    fn view(&mut self) -> TensorMut<'_> {
        TensorMut::from_slice(&mut self.0, &self.1, &self.2)
    }
}

#[test]
fn triangles() {
    for n in [1, 2, 5, 17] {
        let a = numbers(n * n, n as u64);
        let mut square = product(&a, &transposed(&a, [n, n]), [n, n, n]);
        (0..n).for_each(|i| square[i * n + i] += 1.0);
        let mut factor = Out::<f64>::new(&[n, n]);
        cholesky(Given::new(&square, &[n, n]).view(), factor.view()).unwrap();
        near(&product(&factor.0, &transposed(&factor.0, [n, n]), [n, n, n]), &square);
        assert!((0..n * n).all(|at| at % n <= at / n || factor.0[at] == 0.0));
        for upper in [false, true] {
            for unit_diagonal in [false, true] {
                let keeps = |at: usize| at / n == at % n || (at % n > at / n) == upper;
                let triangle: Vec<f64> = (0..n * n)
                    .map(|at| match (keeps(at), at / n == at % n) {
                        (false, _) => 0.0,
                        (true, true) => {
                            if unit_diagonal {
                                1.0
                            } else {
                                2.0 + a[at]
                            }
                        }
                        (true, false) => 0.2 * a[at],
                    })
                    .collect();
                // What is not read is NaN.
                let unread = |at: usize| !keeps(at) || (unit_diagonal && at / n == at % n);
                let given: Vec<f64> = (0..n * n).map(|at| if unread(at) { f64::NAN } else { triangle[at] }).collect();
                let b = numbers(n * 3, 7);
                let mut x = Out::<f64>::new(&[n, 3]);
                let (given, right) = (Given::new(&given, &[n, n]), Given::new(&b, &[n, 3]));
                triangular_solve(given.view(), right.view(), upper, unit_diagonal, x.view());
                near(&product(&triangle, &x.0, [n, n, 3]), &b);
            }
        }
    }
}

#[test]
fn the_first_matrix_that_fails_is_named() {
    let mut data = [unit(2), unit(2), unit(2)].concat();
    (data[7], data[11]) = (-1.0, -1.0);
    let shape = [3, 2, 2];
    let mut out = Out::<f64>::new(&shape);
    assert_eq!(cholesky(Given::new(&data, &shape).view(), out.view()), Err(Fault { matrix: 1, place: 1 }));
    data[11] = 0.0;
    let (mut pivots, mut order) = (Out::<i32>::new(&[3, 2]), Out::<i64>::new(&[3, 2]));
    let input = Given::new(&data, &shape);
    let found = lu(input.view(), true, out.view(), pivots.view(), order.view());
    assert_eq!(found, Err(Fault { matrix: 2, place: 1 }));
    assert_eq!(lu(input.view(), false, out.view(), pivots.view(), order.view()), Ok(()));
}

#[test]
fn solutions() {
    for [n, columns] in [[1, 1], [4, 2], [9, 9], [0, 2], [2, 0]] {
        let (a, b) = (numbers(n * n, 13), numbers(n * columns, 14));
        let mut x = Out::<f64>::new(&[n, columns]);
        solve(Given::new(&a, &[n, n]).view(), Given::new(&b, &[n, columns]).view(), x.view()).unwrap();
        near(&product(&a, &x.0, [n, n, columns]), &b);
    }
    let (a, mut x) = (Given::new(&[1.0, 2.0, 2.0, 4.0], &[1, 2, 2]), Out::<f64>::new(&[1, 2, 1]));
    let found = solve(a.view(), Given::new(&[1.0, 1.0], &[1, 2, 1]).view(), x.view());
    assert_eq!(found, Err(Fault { matrix: 0, place: 1 }));
}

#[test]
fn lu_of_any_extents() {
    for [m, n] in [[1, 1], [4, 4], [3, 5], [5, 3], [0, 2], [2, 0]] {
        let k = m.min(n);
        let a = numbers(2 * m * n, 3);
        let (mut factors, mut pivots, mut order) =
            (Out::<f64>::new(&[2, m, n]), Out::<i32>::new(&[2, k]), Out::<i64>::new(&[2, m]));
        lu(Given::new(&a, &[2, m, n]).view(), true, factors.view(), pivots.view(), order.view()).unwrap();
        for batch in 0..2 {
            let factors = &factors.0[batch * m * n..(batch + 1) * m * n];
            let lower: Vec<f64> = (0..m * k)
                .map(|at| match (at / k).cmp(&(at % k)) {
                    std::cmp::Ordering::Less => 0.0,
                    std::cmp::Ordering::Equal => 1.0,
                    std::cmp::Ordering::Greater => factors[at / k * n + at % k],
                })
                .collect();
            let upper: Vec<f64> =
                (0..k * n).map(|at| if at / n <= at % n { factors[at / n * n + at % n] } else { 0.0 }).collect();
            let order = &order.0[batch * m..(batch + 1) * m];
            let a = &a[batch * m * n..(batch + 1) * m * n];
            let permuted: Vec<f64> =
                order.iter().flat_map(|row| a[*row as usize * n..(*row as usize + 1) * n].to_vec()).collect();
            near(&product(&lower, &upper, [m, k, n]), &permuted);
            let mut exchanged: Vec<i64> = (0..m as i64).collect();
            for (i, row) in pivots.0[batch * k..(batch + 1) * k].iter().enumerate() {
                exchanged.swap(i, *row as usize - 1);
            }
            assert_eq!(exchanged, order);
        }
    }
}

#[test]
fn qr_of_any_extents() {
    for [m, n] in [[1, 1], [4, 4], [3, 6], [6, 3], [0, 2], [2, 0], [30, 20]] {
        for k in [m.min(n), m] {
            let a = numbers(m * n, 5);
            let (mut q, mut r) = (Out::<f64>::new(&[m, k]), Out::<f64>::new(&[k, n]));
            qr(Given::new(&a, &[m, n]).view(), q.view(), r.view());
            near(&product(&q.0, &r.0, [m, k, n]), &a);
            near(&product(&transposed(&q.0, [m, k]), &q.0, [k, m, k]), &unit(k));
            assert!((0..k * n).all(|at| at / n <= at % n || r.0[at] == 0.0));
        }
    }
}

#[test]
fn eigenvalues_and_vectors() {
    for n in [0, 1, 2, 3, 8, 40] {
        let a = numbers(n * n, 11);
        let (mut values, mut vectors) = (Out::<f64>::new(&[n]), Out::<f64>::new(&[n, n]));
        eigh(Given::new(&a, &[n, n]).view(), values.view(), vectors.view()).unwrap();
        let symmetric: Vec<f64> = (0..n * n).map(|at| 0.5 * (a[at] + a[at % n * n + at / n])).collect();
        let scaled: Vec<f64> = (0..n * n).map(|at| vectors.0[at] * values.0[at % n]).collect();
        near(&product(&symmetric, &vectors.0, [n, n, n]), &scaled);
        near(&product(&transposed(&vectors.0, [n, n]), &vectors.0, [n, n, n]), &unit(n));
        assert!(values.0.is_sorted());
    }
    // Equal eigenvalues, and numbers at both ends of the range.
    for size in [0.0, 1.0, 1e300, 1e-300] {
        let a: Vec<f64> = [1.0, 1.0, 0.0, 1.0, 1.0, 0.0, 0.0, 0.0, 2.0].map(|x| x * size).to_vec();
        let (mut values, mut vectors) = (Out::<f64>::new(&[3]), Out::<f64>::new(&[3, 3]));
        eigh(Given::new(&a, &[3, 3]).view(), values.view(), vectors.view()).unwrap();
        let expected = [0.0, 2.0 * size, 2.0 * size];
        values.0.iter().zip(expected).for_each(|(x, y)| assert!((x - y).abs() <= 1e-14 * size, "{x} {y}"));
    }
}

#[test]
fn singular_values_and_vectors() {
    for [m, n] in [[1, 1], [4, 4], [3, 6], [6, 3], [0, 2], [2, 0], [30, 20]] {
        for full in [false, true] {
            for rank in [m.min(n), 1] {
                let k = m.min(n);
                let (left, right) = if full { (m, n) } else { (k, k) };
                let a = product(&numbers(m * rank, 5), &numbers(rank * n, 6), [m, rank, n]);
                let (mut u, mut s, mut vh) =
                    (Out::<f64>::new(&[m, left]), Out::<f64>::new(&[k]), Out::<f64>::new(&[right, n]));
                svd(Given::new(&a, &[m, n]).view(), u.view(), s.view(), vh.view()).unwrap();
                let middle: Vec<f64> = (0..left * right)
                    .map(|at| if at / right == at % right && at % right < k { s.0[at % right] } else { 0.0 })
                    .collect();
                near(&product(&product(&u.0, &middle, [m, left, right]), &vh.0, [m, right, n]), &a);
                near(&product(&transposed(&u.0, [m, left]), &u.0, [left, m, left]), &unit(left));
                near(&product(&vh.0, &transposed(&vh.0, [right, n]), [right, n, right]), &unit(right));
                assert!(s.0.is_sorted_by(|a, b| a >= b));
            }
        }
    }
    // Lines that are the same up to a factor, to the bit: after the first rotations they are zeros and what underflows.
    for [m, n] in [[10, 12], [12, 10]] {
        let a: Vec<f64> = numbers(m, 7).iter().flat_map(|x| vec![f64::from(*x as f32); n]).collect();
        let (mut u, mut s, mut vh) = (Out::<f64>::new(&[m, 10]), Out::<f64>::new(&[10]), Out::<f64>::new(&[10, n]));
        svd(Given::new(&a, &[m, n]).view(), u.view(), s.view(), vh.view()).unwrap();
        near(&[s.0[0]], &[a.iter().map(|x| x * x).sum::<f64>().sqrt()]);
        near(&product(&transposed(&u.0, [m, 10]), &u.0, [10, m, 10]), &unit(10));
    }
    let a = [1.0, f64::INFINITY];
    let (mut u, mut s, mut vh) = (Out::<f64>::new(&[1, 1]), Out::<f64>::new(&[1]), Out::<f64>::new(&[1, 2]));
    let found = svd(Given::new(&a, &[1, 2]).view(), u.view(), s.view(), vh.view());
    assert_eq!(found, Err(Fault { matrix: 0, place: 0 }));
}

#[test]
fn exponentials() {
    // Of a rotation, of a nilpotent matrix, and of a large negative number.
    let angle = 100.0f64;
    for (a, expected) in [
        ([0.0, -angle, angle, 0.0], [angle.cos(), -angle.sin(), angle.sin(), angle.cos()]),
        ([0.0, 3.0, 0.0, 0.0], [1.0, 3.0, 0.0, 1.0]),
        ([-700.0, 0.0, 0.0, 1.0], [(-700f64).exp(), 0.0, 0.0, 1f64.exp()]),
    ] {
        let mut out = Out::<f64>::new(&[2, 2]);
        matrix_exp(Given::new(&a, &[2, 2]).view(), out.view());
        out.0.iter().zip(expected).for_each(|(x, y)| assert!((x - y).abs() <= 1e-11, "{x} {y}"));
    }
    let mut out = Out::<f64>::new(&[1, 1]);
    matrix_exp(Given::new(&[f64::INFINITY], &[1, 1]).view(), out.view());
    assert!(out.0[0].is_nan());
}

/// Many matrices have the bits of each alone, on one thread and on several.
#[test]
fn the_number_of_threads_changes_no_bit() {
    let (count, n) = (400, 12);
    let data: Vec<f32> = numbers(count * n * n, 9).into_iter().map(|x| x as f32).collect();
    let shape = [count, n, n];
    let steps = contiguous_strides(&shape);
    let run = |threads: usize| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| {
            let (mut values, mut vectors) = (Out::<f32>::new(&[count, n]), Out::<f32>::new(&shape));
            eigh(TensorRef::from_slice(&data, &shape, &steps), values.view(), vectors.view()).unwrap();
            (values.0, vectors.0)
        })
    };
    assert!(run(1) == run(3));
}
