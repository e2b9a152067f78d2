//! `#[derive(Row)]` for `cdr-plugin-sdk`; use it through that crate, which
//! documents it.

use proc_macro::TokenStream;
use proc_macro2::TokenStream as Tokens;
use quote::{format_ident, quote};
use syn::{Data, DeriveInput, Error, Field, Fields, Lifetime, LitStr, parse_macro_input};

/// Derives `cdr_plugin_sdk::Row`: the fields of the struct, in order, are the
/// columns. See the documentation of that trait.
#[proc_macro_derive(Row, attributes(column))]
pub fn derive_row(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    expand(&input)
        .unwrap_or_else(Error::into_compile_error)
        .into()
}

/// What `#[column(…)]` says of a field.
#[derive(Default)]
struct Attributes {
    name: Option<String>,
    kind: Option<(syn::Ident, &'static str)>,
}

/// The kinds that share a Rust type with another kind, and the kind whose
/// representation they borrow.
const OVERRIDES: [(&str, &str, &str); 3] = [
    ("category", "Category", "Text"),
    ("seconds", "Seconds", "Uint32"),
    ("millis", "Millis", "Int64"),
];

fn attributes(field: &Field) -> Result<Attributes, Error> {
    let mut found = Attributes::default();
    for attribute in &field.attrs {
        if !attribute.path().is_ident("column") {
            continue;
        }
        attribute.parse_nested_meta(|meta| {
            if meta.path.is_ident("name") {
                found.name = Some(meta.value()?.parse::<LitStr>()?.value());
                return Ok(());
            }
            for (word, kind, base) in OVERRIDES {
                if meta.path.is_ident(word) {
                    found.kind = Some((format_ident!("{kind}"), base));
                    return Ok(());
                }
            }
            Err(meta.error("expected `category`, `seconds`, `millis` or `name = \"…\"`"))
        })?;
    }
    Ok(found)
}

fn expand(input: &DeriveInput) -> Result<Tokens, Error> {
    let Data::Struct(data) = &input.data else {
        return Err(Error::new_spanned(&input.ident, "a row is a struct"));
    };
    let Fields::Named(fields) = &data.fields else {
        return Err(Error::new_spanned(
            &input.ident,
            "a row has named fields: their names are the columns",
        ));
    };
    if let Some(parameter) = input.generics.type_params().next() {
        return Err(Error::new_spanned(
            parameter,
            "a row may have lifetimes, but no type parameters",
        ));
    }

    let mut specs = Vec::new();
    let mut builders = Vec::new();
    let mut pushes = Vec::new();
    let mut finishes = Vec::new();
    let mut checks = Vec::new();
    for (position, field) in fields.named.iter().enumerate() {
        let Some(ident) = &field.ident else { continue };
        let ty = static_lifetimes(&field.ty);
        let attributes = attributes(field)?;
        let name = attributes
            .name
            .unwrap_or_else(|| ident.to_string().trim_start_matches("r#").to_owned());
        let kind = match &attributes.kind {
            None => quote!(<#ty as ::cdr_plugin_sdk::Value>::KIND),
            Some((kind, base)) => {
                let base = format_ident!("{base}");
                let message = format!("`{name}`: this kind of column is stored as {base}");
                checks.push(quote! {
                    assert!(
                        matches!(
                            <#ty as ::cdr_plugin_sdk::Value>::KIND,
                            ::cdr_plugin_sdk::ColumnType::#base
                        ),
                        #message
                    );
                });
                quote!(::cdr_plugin_sdk::ColumnType::#kind)
            }
        };
        if attributes
            .kind
            .as_ref()
            .is_some_and(|(kind, _)| kind == "Category")
        {
            let message = format!("`{name}`: a category can't be nullable; use an empty text");
            checks.push(quote! {
                assert!(!<#ty as ::cdr_plugin_sdk::Value>::NULLABLE, #message);
            });
        }
        specs.push(quote! {
            ::cdr_plugin_sdk::Column {
                name: #name,
                kind: #kind,
                nullable: <#ty as ::cdr_plugin_sdk::Value>::NULLABLE,
            }
        });
        let index = syn::Index::from(position);
        builders.push(quote!(<#ty as ::cdr_plugin_sdk::Value>::Builder));
        pushes.push(quote!(::cdr_plugin_sdk::Value::push(self.#ident, &mut builders.#index);));
        finishes.push(quote!(::cdr_plugin_sdk::Builder::finish(builders.#index)));
    }
    if specs.is_empty() {
        return Err(Error::new_spanned(
            &input.ident,
            "a row has a column at least",
        ));
    }

    let ident = &input.ident;
    let (impl_generics, type_generics, where_clause) = input.generics.split_for_impl();
    Ok(quote! {
        const _: () = { #(#checks)* };

        #[automatically_derived]
        impl #impl_generics ::cdr_plugin_sdk::Row for #ident #type_generics #where_clause {
            const COLUMNS: &'static [::cdr_plugin_sdk::Column] = &[#(#specs),*];
            type Builders = (#(#builders,)*);

            fn builders(rows: usize) -> Self::Builders {
                (#(<#builders as ::cdr_plugin_sdk::Builder>::with_capacity(rows),)*)
            }
            fn push(self, builders: &mut Self::Builders) {
                #(#pushes)*
            }
            fn finish(
                builders: Self::Builders,
            ) -> ::std::vec::Vec<::cdr_plugin_sdk::bindings::Column> {
                ::std::vec![#(#finishes),*]
            }
        }
    })
}

/// The type with every lifetime made `'static`: kinds and builders don't depend
/// on them, and the checks stand outside of the impl.
fn static_lifetimes(ty: &syn::Type) -> syn::Type {
    struct MakeStatic;
    impl syn::visit_mut::VisitMut for MakeStatic {
        fn visit_lifetime_mut(&mut self, lifetime: &mut Lifetime) {
            lifetime.ident = format_ident!("static");
        }
        fn visit_type_reference_mut(&mut self, reference: &mut syn::TypeReference) {
            reference.lifetime = Some(Lifetime::new("'static", proc_macro2::Span::call_site()));
            syn::visit_mut::visit_type_mut(self, &mut reference.elem);
        }
    }
    let mut ty = ty.clone();
    syn::visit_mut::VisitMut::visit_type_mut(&mut MakeStatic, &mut ty);
    ty
}
