//! Generated from `wit/1.0.0`.

wit_bindgen::generate!({
    path: "../../wit/1.0.0",
    world: "plugin",
    pub_export_macro: true,
    export_macro_name: "__export_component",
    default_bindings_module: "cdr_plugin_sdk::bindings",
});
