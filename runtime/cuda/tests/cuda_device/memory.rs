//! Memory: copies, fills, counters, and there not being enough.

use crate::fixture::device;
use fulgurite_cuda::{Context, CudaError, DeviceMemory, PinnedMemory};

#[test]
fn bytes_go_to_the_device_and_come_back() {
    let Some(device) = device() else { return };
    let bytes: Vec<u8> = (0..10_007u32).map(|i| (i * 31 % 251) as u8).collect();
    let mut first = device.upload(&bytes);
    assert_eq!(device.download(&first), bytes);
    assert!(first.address().0.is_multiple_of(256));

    let second = DeviceMemory::new(&device.context, bytes.len()).unwrap();
    // SAFETY: both have that many bytes, and nothing else runs.
    unsafe { device.stream.copy_on_device(second.address(), first.address(), bytes.len()) }.unwrap();
    assert_eq!(device.download(&second), bytes);

    first.write(&device.stream, 10_000, &[1, 2, 3]).unwrap();
    let mut part = [0; 4];
    first.read(&device.stream, 9_999, &mut part).unwrap();
    assert_eq!(part, [bytes[9_999], 1, 2, 3]);
    let error = first.write(&device.stream, 10_005, &[0; 3]).unwrap_err();
    assert!(matches!(error, CudaError::Range { start: 10_005, end: 10_008, len: 10_007 }), "{error}");
    assert!(first.read(&device.stream, usize::MAX, &mut part).is_err());

    let empty = DeviceMemory::new(&device.context, 0).unwrap();
    assert!(empty.is_empty() && empty.address().is_null());
    assert!(device.download(&empty).is_empty());
}

#[test]
fn pinned_memory_is_copied_without_waiting() {
    let Some(device) = device() else { return };
    let mut from = PinnedMemory::new(&device.context, 1 << 20).unwrap();
    let mut to = PinnedMemory::new(&device.context, 1 << 20).unwrap();
    assert!(from.as_bytes().iter().all(|&byte| byte == 0));
    from.as_bytes_mut().iter_mut().enumerate().for_each(|(i, byte)| *byte = (i * 7) as u8);
    let memory = DeviceMemory::new(&device.context, 1 << 20).unwrap();
    // SAFETY: all three have that many bytes, and nobody touches them until the stream is done.
    unsafe {
        device.stream.copy_to_device(memory.address(), from.as_bytes()).unwrap();
        device.stream.copy_to_host(to.as_bytes_mut(), memory.address()).unwrap();
    }
    device.stream.synchronize().unwrap();
    assert_eq!(from.as_bytes(), to.as_bytes());
    assert!(PinnedMemory::new(&device.context, 0).unwrap().as_bytes().is_empty());
}

#[test]
fn fills_write_what_they_should_and_no_more() {
    let Some(device) = device() else { return };
    let memory = device.upload(&[0x11; 64]);
    let at = |offset| memory.address().offset(offset);
    // SAFETY: the ranges are in the memory, and nothing else runs.
    unsafe {
        device.stream.fill_u8(at(1), 0xFF, 3).unwrap();
        device.stream.fill_u16(at(8), 0x7FC0, 3).unwrap();
        device.stream.fill_u32(at(20), 0x3F80_0000, 2).unwrap();
        device.stream.fill_u32(at(40), 0, 0).unwrap();
    }
    let mut expected = [0x11; 64];
    expected[1..4].fill(0xFF);
    expected[8..14].copy_from_slice(&[0xC0, 0x7F, 0xC0, 0x7F, 0xC0, 0x7F]);
    expected[20..28].copy_from_slice(&[0, 0, 0x80, 0x3F, 0, 0, 0x80, 0x3F]);
    assert_eq!(device.download(&memory), expected);
}

#[test]
fn the_counters_are_what_was_asked_for() {
    let Some(device) = device() else { return };
    let before = device.context.allocated_bytes();
    device.context.reset_peak();
    let first = DeviceMemory::new(&device.context, 1000).unwrap();
    let second = DeviceMemory::new(&device.context, 1 << 20).unwrap();
    assert_eq!(device.context.allocated_bytes() - before, 1000 + (1 << 20));
    drop(first);
    let third = DeviceMemory::new(&device.context, 24).unwrap();
    assert_eq!(device.context.allocated_bytes() - before, (1 << 20) + 24);
    drop((second, third));
    assert_eq!(device.context.allocated_bytes(), before);
    assert_eq!(device.context.peak_bytes() - before, 1000 + (1 << 20));
    device.context.reset_peak();
    assert_eq!(device.context.peak_bytes(), before);

    let same = Context::new(0).unwrap();
    assert_eq!(same, device.context);
    assert_eq!(same.allocated_bytes(), before);
}

#[test]
fn too_much_memory_is_an_error_with_what_there_is() {
    let Some(device) = device() else { return };
    let held = DeviceMemory::new(&device.context, 1 << 20).unwrap();
    let total = device.context.device().memory_bytes;
    match DeviceMemory::new(&device.context, 2 * total) {
        Err(CudaError::OutOfMemory { asked, free, total: reported, held }) => {
            assert_eq!(asked, 2 * total);
            assert!(free < reported && reported <= total);
            assert_eq!(held, device.context.allocated_bytes());
        }
        other => panic!("{other:?}"),
    }
    drop(held);
    // Nothing is broken by it.
    assert_eq!(device.download(&device.upload(&[1, 2, 3])), [1, 2, 3]);
}

#[test]
fn a_device_that_is_not_there_is_an_error() {
    let Some(_device) = device() else { return };
    let error = Context::new(1000).unwrap_err();
    assert!(matches!(error, CudaError::NoSuchDevice { ordinal: 1000, .. }), "{error}");
}

#[test]
fn a_context_works_on_every_thread() {
    let Some(device) = device() else { return };
    std::thread::scope(|scope| {
        for n in 0..4u8 {
            let device = &device;
            scope.spawn(move || assert_eq!(device.download(&device.upload(&[n; 999])), [n; 999]));
        }
    });
}
