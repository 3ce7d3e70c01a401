//! Capturing, replaying, and streams that wait for each other.

use crate::fixture::{Device, device};
use fulgurite_cuda::{
    Arguments, CaptureMode, CudaError, DeviceMemory, Event, Fill, Function, Graph, LaunchShape, NodeCounts, Priority,
    Stream,
};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

const SOURCE: &str = r#"
extern "C" __global__ void increment(unsigned* value) { *value += 1; }
extern "C" __global__ void twice(unsigned* value) { *value *= 2; }
extern "C" __global__ void spin(unsigned* value, long long cycles) {
    long long start = clock64();
    while (clock64() - start < cycles) {}
    *value = 7;
}
"#;

fn increment(device: &Device, function: &Function, value: &DeviceMemory) -> Result<(), CudaError> {
    let arguments = Arguments::new().pointer(value.address());
    // SAFETY: the kernel changes one number, which only work of this stream uses.
    unsafe { function.launch(&device.stream, &LaunchShape::linear(1, 1), &arguments) }
}

fn replay(device: &Device, graph: &fulgurite_cuda::ExecutableGraph) {
    // SAFETY: what the graph uses is alive, and used by this stream only.
    unsafe { graph.launch(&device.stream) }.unwrap();
}

#[test]
fn nodes_are_counted_by_their_kind() {
    let Some(device) = device() else { return };
    let function = device.function(SOURCE, "increment");
    let (value, other) = (device.upload(&[0; 4]), device.upload(&[0; 4]));
    let record = || -> Result<(), CudaError> {
        increment(&device, &function, &value)?;
        // SAFETY: all is allocated, has four bytes, and is used by this stream only.
        unsafe {
            device.stream.copy_on_device(other.address(), value.address(), 4)?;
            device.stream.fill_u8(value.address(), 0, 4)?;
        }
        increment(&device, &function, &value)
    };
    let graph = device.stream.capture(CaptureMode::ThreadLocal, record).unwrap();
    let expected = NodeCounts { kernels: 2, copies: 1, fills: 1, others: 0 };
    assert_eq!(graph.node_counts().unwrap(), expected);
    let nothing = device.stream.capture(CaptureMode::ThreadLocal, || Ok::<(), CudaError>(())).unwrap();
    assert_eq!(nothing.node_counts().unwrap(), NodeCounts::default());
}

#[test]
fn a_hundred_launches_are_recorded_once_and_replayed() {
    let Some(device) = device() else { return };
    let function = device.function(SOURCE, "increment");
    let value = device.upload(&[0; 4]);
    let record = || (0..100).try_for_each(|_| increment(&device, &function, &value));
    let graph = device.stream.capture(CaptureMode::ThreadLocal, record).unwrap();
    assert_eq!(graph.nodes().unwrap(), 100);
    assert_eq!(device.download_of::<u32>(&value), [0], "recording runs nothing");

    let executable = graph.instantiate().unwrap();
    drop(graph);
    executable.upload(&device.stream).unwrap();
    for _ in 0..3 {
        replay(&device, &executable);
    }
    assert_eq!(device.download_of::<u32>(&value), [300]);

    // For people: what a replay costs on the host and on the device, beside plain launches.
    let (start, end) = (Event::timed(&device.context).unwrap(), Event::timed(&device.context).unwrap());
    let timed = |what: &str, enqueue: &dyn Fn()| {
        device.stream.synchronize().unwrap();
        start.record(&device.stream).unwrap();
        let before = Instant::now();
        (0..20).for_each(|_| enqueue());
        let host = before.elapsed().as_secs_f64() * 1e6 / 20.0;
        end.record(&device.stream).unwrap();
        end.synchronize().unwrap();
        let on_device = f64::from(end.milliseconds_since(&start).unwrap()) * 1e3 / 20.0;
        println!("{what}: {host:.1} us on the host, {on_device:.1} us on the device for 100 kernels");
    };
    timed("launches", &|| record().unwrap());
    timed("replay", &|| replay(&device, &executable));
}

#[test]
fn a_capture_that_fails_or_panics_leaves_the_stream_usable() {
    let Some(device) = device() else { return };
    let function = device.function(SOURCE, "increment");
    let value = device.upload(&[0; 4]);
    let one = || increment(&device, &function, &value);

    let failed = device.stream.capture(CaptureMode::ThreadLocal, || {
        one()?;
        Err(CudaError::Cubin { reason: "a reason of the caller's".into() })
    });
    assert!(failed.unwrap_err().to_string().contains("a reason of the caller's"));

    let unwound = catch_unwind(AssertUnwindSafe(|| {
        device.stream.capture::<CudaError>(CaptureMode::ThreadLocal, || {
            one()?;
            panic!("a panic of the caller's")
        })
    }));
    assert!(unwound.is_err());

    // Waiting for a stream that is being captured is what no graph can hold.
    let waited = device.stream.capture(CaptureMode::ThreadLocal, || {
        one()?;
        device.stream.synchronize()
    });
    let error = waited.unwrap_err();
    assert!(error.to_string().contains("CUDA_ERROR_STREAM_CAPTURE"), "{error}");
    // The same, but the caller does not notice.
    let ignored = device.stream.capture::<CudaError>(CaptureMode::ThreadLocal, || {
        one()?;
        let _ = device.stream.synchronize();
        Ok(())
    });
    assert!(ignored.unwrap_err().to_string().contains("CUDA_ERROR_STREAM_CAPTURE"));

    one().unwrap();
    assert_eq!(device.download_of::<u32>(&value), [1]);
    let graph = device.stream.capture(CaptureMode::Relaxed, one).unwrap();
    replay(&device, &graph.instantiate().unwrap());
    assert_eq!(device.download_of::<u32>(&value), [2]);
}

#[test]
fn a_graph_holds_work_of_two_streams() {
    let Some(device) = device() else { return };
    let function = device.function(SOURCE, "increment");
    let other = Stream::with_priority(&device.context, Priority::High).unwrap();
    let (a, b) = (device.upload(&[0; 4]), device.upload(&[0; 4]));
    let graph = device.stream.capture::<CudaError>(CaptureMode::ThreadLocal, || {
        increment(&device, &function, &a)?;
        other.wait_for(&device.stream)?;
        // SAFETY: the copy is ordered behind the increment, and the next one behind the copy.
        unsafe { other.copy_on_device(b.address(), a.address(), 4) }?;
        device.stream.wait_for(&other)?;
        increment(&device, &function, &a)
    });
    let executable = graph.unwrap().instantiate().unwrap();
    replay(&device, &executable);
    replay(&device, &executable);
    assert_eq!((device.download_of::<u32>(&a), device.download_of::<u32>(&b)), (vec![4], vec![3]));
}

#[test]
fn events_measure_time_and_order_streams() {
    let Some(device) = device() else { return };
    let function = device.function(SOURCE, "spin");
    let value = device.upload(&[0; 8]);
    let (start, end) = (Event::timed(&device.context).unwrap(), Event::timed(&device.context).unwrap());
    let cycles = 20_000_000i64;
    start.record(&device.stream).unwrap();
    let arguments = Arguments::new().pointer(value.address()).i64(cycles);
    // SAFETY: the kernel writes one number.
    unsafe { function.launch(&device.stream, &LaunchShape::linear(1, 1), &arguments) }.unwrap();
    end.record(&device.stream).unwrap();
    assert!(!end.is_reached().unwrap() && !device.stream.is_idle().unwrap());

    let other = Stream::new(&device.context).unwrap();
    other.wait(&end).unwrap();
    // SAFETY: the copy waits for the kernel; both numbers are allocated.
    unsafe { other.copy_on_device(value.address().offset(4), value.address(), 4) }.unwrap();
    other.synchronize().unwrap();
    assert!(end.is_reached().unwrap() && device.stream.is_idle().unwrap());
    assert_eq!(device.download_of::<u32>(&value), [7, 7]);

    // No device does twenty million cycles in less, at 4 GHz; how much longer it takes is up to what else runs there.
    let milliseconds = end.milliseconds_since(&start).unwrap();
    assert!(milliseconds >= 5.0, "{milliseconds} ms");
    let untimed = Event::new(&device.context).unwrap();
    untimed.record(&device.stream).unwrap();
    untimed.synchronize().unwrap();
    assert!(untimed.milliseconds_since(&start).is_err());
}

/// The driver's fills beside work of two streams, one of them first and one last, each done by a kernel in its place.
#[test]
fn fills_are_done_by_kernels_where_they_were_recorded() {
    let Some(device) = device() else { return };
    let function = device.function(SOURCE, "increment");
    let fill = Fill::new(&device.context).unwrap();
    let other = Stream::with_priority(&device.context, Priority::High).unwrap();
    let (a, b) = (device.upload(&[9; 16]), device.upload(&[9; 16]));
    let capture = || {
        device.stream.capture::<CudaError>(CaptureMode::ThreadLocal, || {
            // SAFETY: all is allocated, and each piece is ordered behind those whose values it uses.
            unsafe {
                device.stream.fill_u8(a.address(), 1, 4)?;
                device.stream.fill_u32(a.address().offset(4), 0x0505_0505, 1)?;
                device.stream.fill_u32(a.address().offset(8), 0x0605_0403, 1)?;
                other.wait_for(&device.stream)?;
                other.fill_u16(b.address(), 0x0707, 2)?;
                increment(&device, &function, &a)?;
                other.copy_on_device(b.address().offset(4), b.address(), 4)?;
                device.stream.wait_for(&other)?;
                increment(&device, &function, &b)?;
                device.stream.fill_u8(b.address().offset(4), 8, 2)
            }
        })
    };
    let mut graph = capture().unwrap();
    assert_eq!(graph.node_counts().unwrap(), NodeCounts { kernels: 2, copies: 1, fills: 5, others: 0 });
    graph.fill_by(&fill).unwrap();
    let counts = graph.node_counts().unwrap();
    assert_eq!(counts, NodeCounts { kernels: 6, copies: 1, fills: 1, others: 0 }, "bytes that differ stay");
    let executable = graph.instantiate().unwrap();
    for _ in 0..2 {
        replay(&device, &executable);
        let expected = [0x0101_0102, 0x0505_0505, 0x0605_0403, 0x0909_0909];
        assert_eq!(device.download_of::<u32>(&a), expected);
        assert_eq!(device.download_of::<u32>(&b), [0x0707_0708, 0x0707_0808, 0x0909_0909, 0x0909_0909]);
    }
}

/// Work recorded in pieces: one of them is exchanged for its like with other addresses, and the rest stays.
#[test]
fn a_piece_of_a_graph_is_updated_without_recording_the_rest() {
    let Some(device) = device() else { return };
    let fill = Fill::new(&device.context).unwrap();
    update_a_piece(&device, None);
    update_a_piece(&device, Some(&fill));
}

/// With `fill`, that does what the driver would fill.
fn update_a_piece(device: &Device, fill: Option<&Fill>) {
    let prepared = |mut graph: Graph| {
        fill.map_or(Ok(()), |fill| graph.fill_by(fill)).unwrap();
        graph
    };
    let function = device.function(SOURCE, "increment");
    let other_function = device.function(SOURCE, "spin");
    let values: Vec<DeviceMemory> = (0..4).map(|_| device.upload(&[0; 64])).collect();
    // Fills its value with a byte, copies it to the next place, and increments that.
    let piece = |value: usize, byte: u8| -> Result<(), CudaError> {
        let address = values[value].address();
        // SAFETY: each value has sixteen numbers.
        unsafe {
            device.stream.fill_u8(address, byte, 4)?;
            device.stream.copy_on_device(address.offset(8), address, 4)?;
        }
        let arguments = Arguments::new().pointer(address.offset(8));
        // SAFETY: the kernel changes one number.
        unsafe { function.launch(&device.stream, &LaunchShape::linear(1, 1), &arguments) }
    };
    let numbers = |value: usize| {
        let all = device.download_of::<u32>(&values[value]);
        (all[0], all[2])
    };
    let graph = prepared(device.stream.capture_pieces(CaptureMode::ThreadLocal, 3, |n| piece(n, 1)).unwrap());
    let fills = if fill.is_some() { 0 } else { 3 };
    assert_eq!(graph.node_counts().unwrap(), NodeCounts { kernels: 6 - fills, copies: 3, fills, others: 0 });
    assert!(graph.is_chain());
    let mut executable = graph.instantiate().unwrap();
    replay(device, &executable);
    let ones = (0x0101_0101, 0x0101_0102);
    assert_eq!([0, 1, 2, 3].map(numbers), [ones, ones, ones, (0, 0)]);
    // The second piece is for the fourth value from now on.
    let one = prepared(device.stream.capture_pieces(CaptureMode::ThreadLocal, 1, |_| piece(3, 2)).unwrap());
    assert!(executable.update(&graph, 1, &one, 0).unwrap());
    drop(one);
    for value in &values {
        // SAFETY: the value has 64 bytes.
        unsafe { device.stream.fill_u8(value.address(), 0, 64) }.unwrap();
    }
    replay(device, &executable);
    let changed = (0x0202_0202, 0x0202_0203);
    assert_eq!([0, 1, 2, 3].map(numbers), [ones, (0, 0), ones, changed]);
    // Pieces of other lengths, or with other kinds of nodes, are no likes.
    let other = device
        .stream
        .capture_pieces::<CudaError>(CaptureMode::ThreadLocal, 2, |n| {
            let address = values[0].address();
            let arguments = Arguments::new().pointer(address).i64(1);
            match n {
                0 => piece(0, 1).and_then(|()| piece(1, 1)),
                // SAFETY: the kernel writes one number.
                _ => (0..3).try_for_each(|_| unsafe {
                    other_function.launch(&device.stream, &LaunchShape::linear(1, 1), &arguments)
                }),
            }
        })
        .unwrap();
    let other = prepared(other);
    assert!(!executable.update(&graph, 0, &other, 0).unwrap());
    assert!(!executable.update(&graph, 0, &other, 1).unwrap());
    assert!(!executable.update(&graph, 7, &other, 0).unwrap());
}

/// A piece of the same kinds of nodes whose kernel is another one with the same parameters.
#[test]
fn a_piece_is_not_exchanged_for_one_of_another_kernel() {
    let Some(device) = device() else { return };
    let [recorded, other] = ["increment", "twice"].map(|name| device.function(SOURCE, name));
    let value = device.upload(&3u32.to_le_bytes());
    let capture = |function: &Function| {
        device.stream.capture_pieces(CaptureMode::ThreadLocal, 1, |_| increment(&device, function, &value)).unwrap()
    };
    let (graph, others) = (capture(&recorded), capture(&other));
    let mut executable = graph.instantiate().unwrap();
    assert!(executable.update(&graph, 0, &capture(&recorded), 0).unwrap());
    assert!(!executable.update(&graph, 0, &others, 0).unwrap());
    replay(&device, &executable);
    assert_eq!(device.download_of::<u32>(&value), [4], "what was recorded is run");
}
