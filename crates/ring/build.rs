//! Makes Rust types of host/layout.h, the one description of the shared memory.

use std::{env, path::PathBuf};

fn main() {
    let header = "../../host/layout.h";
    println!("cargo::rerun-if-changed={header}");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR")).join("layout.rs");
    bindgen::Builder::default()
        .header(header)
        .allowlist_item("(hy|HY)_.*")
        .prepend_enum_name(false)
        .derive_default(false)
        .layout_tests(true)
        .generate()
        .expect("bindgen reads host/layout.h (it needs libclang: apt-get install libclang-dev)")
        .write_to_file(out)
        .expect("OUT_DIR is writable");
}
