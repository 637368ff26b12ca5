//! The library that Python loads.
#![allow(clippy::unwrap_used, reason = "a test may fail")]

#[test]
fn the_library_has_the_function_that_python_calls_to_load_it() {
    // Cargo puts it next to the program of this test; the Python tests load it from there.
    let library = std::env::current_exe().unwrap().with_file_name("lib_core.so");
    let bytes = std::fs::read(&library).unwrap();
    assert!(bytes.windows(12).any(|name| name == b"PyInit__core"), "{}", library.display());
}
