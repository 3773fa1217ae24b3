//! `#[derive(FromRow)]`: from a struct's tokens to an implementation that is generic over the row.

use proc_macro2::TokenStream;
use quote::quote;
use syn::spanned::Spanned as _;
use syn::{Data, DataStruct, DeriveInput, Error, Field, Fields, GenericParam, Path, Result, Type};

use crate::attributes::{Case, FieldAttributes, StructAttributes, column_of};

/// The implementation, or the error that the compiler shows in its place.
pub(crate) fn derive(input: TokenStream, default_crate: &str) -> TokenStream {
    syn::parse2(input)
        .and_then(|input| expand(&input, default_crate))
        .unwrap_or_else(Error::into_compile_error)
}

fn expand(input: &DeriveInput, default_crate: &str) -> Result<TokenStream> {
    let data = only_struct(input)?;
    refuse_lifetimes(input)?;
    let said = StructAttributes::parse(&input.attrs)?;
    let krate = match said.krate {
        Some(path) => path,
        None => syn::parse_str::<Path>(default_crate)?,
    };
    let values = values(&data.fields, said.rename_all)?;

    let row = quote!(#krate::__private);
    let bounds = values.iter().filter(|value| !matches!(value.column, Column::None)).map(|value| {
        let ty = value.ty;
        quote!(#row::Field<#ty>)
    });
    let fields = values.iter().map(|value| value.expression(&row));
    let body = if let Fields::Named(named) = &data.fields {
        let names = named.named.iter().map(|field| &field.ident);
        quote!(Self { #(#names: #fields),* })
    } else {
        quote!(Self(#(#fields),*))
    };

    let name = &input.ident;
    let (_, type_generics, where_clause) = input.generics.split_for_impl();
    let mut generics = input.generics.clone();
    generics.params.push(syn::parse_quote!(__Row));
    let (impl_generics, _, _) = generics.split_for_impl();
    let predicates = where_clause.into_iter().flat_map(|clause| &clause.predicates);

    Ok(quote! {
        #[automatically_derived]
        impl #impl_generics #row::FromRow<__Row> for #name #type_generics
        where
            __Row: #row::FieldSource #(+ #bounds)*,
            #(#predicates,)*
        {
            fn from_row(
                row: &__Row,
            ) -> ::core::result::Result<Self, <__Row as #row::FieldSource>::Error> {
                ::core::result::Result::Ok(#body)
            }
        }
    })
}

fn only_struct(input: &DeriveInput) -> Result<&DataStruct> {
    let problem = match &input.data {
        Data::Struct(data) if !data.fields.is_empty() => return Ok(data),
        Data::Struct(_) => "FromRow needs at least one field to fill from a row",
        Data::Enum(_) => {
            "FromRow is for structs, whose fields are a row's columns; an enum can be the type of one column"
        }
        Data::Union(_) => "FromRow is for structs, whose fields are a row's columns; a union has no columns",
    };
    Err(Error::new(input.ident.span(), problem))
}

fn refuse_lifetimes(input: &DeriveInput) -> Result<()> {
    let mut problems = input.generics.params.iter().filter_map(|param| match param {
        GenericParam::Lifetime(lifetime) => Some(Error::new(
            lifetime.span(),
            "FromRow cannot borrow from the row, which is gone when the value is used: use an owned type such as String",
        )),
        _ => None,
    });
    problems.next().map_or(Ok(()), Err)
}

/// Where a field's value comes from.
enum Column {
    None,
    At(usize),
    Named { hint: usize, name: String },
}

/// One field of the struct.
struct Value<'a> {
    ty: &'a Type,
    column: Column,
}

impl Value<'_> {
    fn expression(&self, row: &TokenStream) -> TokenStream {
        let ty = self.ty;
        match &self.column {
            Column::None => quote!(<#ty as ::core::default::Default>::default()),
            Column::At(index) => quote!(<__Row as #row::Field<#ty>>::field_at(row, #index)?),
            Column::Named { hint, name } => {
                quote!(<__Row as #row::Field<#ty>>::field_hinted(row, #hint, #name)?)
            }
        }
    }
}

/// All fields in order, or everything that is wrong with them at once.
fn values(fields: &Fields, rename_all: Option<Case>) -> Result<Vec<Value<'_>>> {
    if let (Fields::Unnamed(_), Some(_)) = (fields, rename_all) {
        let problem = "a tuple struct takes columns by position: `rename_all` needs named fields";
        return Err(Error::new(fields.span(), problem));
    }
    let mut next = 0;
    let mut values = Vec::with_capacity(fields.len());
    let mut problems: Option<Error> = None;
    for field in fields {
        match column(field, next, rename_all) {
            Ok(column) => {
                next += usize::from(!matches!(column, Column::None));
                values.push(Value { ty: &field.ty, column });
            }
            Err(problem) => match &mut problems {
                Some(earlier) => earlier.combine(problem),
                None => problems = Some(problem),
            },
        }
    }
    problems.map_or(Ok(values), Err)
}

/// The column of one field; `next` is the position that it has if the query lists columns as the struct does.
fn column(field: &Field, next: usize, rename_all: Option<Case>) -> Result<Column> {
    let said = FieldAttributes::parse(&field.attrs)?;
    if said.skip {
        return Ok(Column::None);
    }
    match (&field.ident, &said.rename) {
        (Some(name), _) => Ok(Column::Named { hint: next, name: column_of(name, &said, rename_all) }),
        (None, None) => Ok(Column::At(next)),
        (None, Some(column)) => {
            let problem = "a tuple struct takes columns by position: `rename` needs a named field";
            Err(Error::new(column.span(), problem))
        }
    }
}

#[cfg(test)]
mod tests {
    use quote::quote;

    use super::derive;

    fn expanded(input: proc_macro2::TokenStream) -> String {
        derive(input, "::pg_pipeline").to_string()
    }

    /// The texts of all compile errors in what was generated.
    fn errors(input: proc_macro2::TokenStream) -> Vec<String> {
        let text = expanded(input);
        let messages = text.split("compile_error ! {").skip(1);
        messages.map(|rest| rest.split('}').next().unwrap_or_default().trim().to_owned()).collect()
    }

    #[track_caller]
    fn refused(input: proc_macro2::TokenStream, why: &str) {
        let errors = errors(input);
        assert!(errors.len() == 1 && errors[0].contains(why), "{errors:?}");
    }

    #[test]
    fn the_driver_is_named_absolutely_unless_said_otherwise() {
        assert!(
            expanded(quote!(
                struct World {
                    id: i32,
                }
            ))
            .contains(":: pg_pipeline :: __private :: FromRow")
        );
        let moved = expanded(quote!(
            #[from_row(crate = "crate::db")]
            struct World {
                id: i32,
            }
        ));
        assert!(moved.contains("crate :: db :: __private :: FromRow"), "{moved}");
        assert!(!moved.contains("pg_pipeline"), "{moved}");
    }

    #[test]
    fn columns_count_without_skipped_fields() {
        let text = expanded(quote!(
            struct World {
                id: i32,
                #[from_row(skip)]
                cached: bool,
                r#type: String,
            }
        ));
        assert!(text.contains("field_hinted (row , 0usize , \"id\")"), "{text}");
        assert!(text.contains("field_hinted (row , 1usize , \"type\")"), "{text}");
        assert!(!text.contains("Field < bool >"), "{text}");
    }

    #[test]
    fn what_is_no_struct_with_fields_is_refused() {
        refused(
            quote!(
                enum Colour {
                    Red,
                }
            ),
            "FromRow is for structs",
        );
        refused(quote!(union Bits { a: u8 }), "a union has no columns");
        refused(
            quote!(
                struct Nothing;
            ),
            "at least one field",
        );
        refused(
            quote!(
                struct Nothing {}
            ),
            "at least one field",
        );
    }

    #[test]
    fn borrowing_from_the_row_is_refused() {
        refused(
            quote!(
                struct World<'a> {
                    name: &'a str,
                }
            ),
            "use an owned type",
        );
    }

    #[test]
    fn unknown_and_contradicting_attributes_are_refused() {
        refused(
            quote!(
                struct W {
                    #[from_row(flatten)]
                    id: i32,
                }
            ),
            "a field may have `rename",
        );
        refused(
            quote!(
                #[from_row(rename = "x")]
                struct W {
                    id: i32,
                }
            ),
            "a struct may have `rename_all",
        );
        refused(
            quote!(
                #[from_row(rename_all = "Title")]
                struct W {
                    id: i32,
                }
            ),
            "unknown style of names",
        );
        refused(
            quote!(
                struct W {
                    #[from_row(rename = "")]
                    id: i32,
                }
            ),
            "not empty",
        );
        refused(
            quote!(
                struct W {
                    #[from_row(rename = "a", skip)]
                    id: i32,
                }
            ),
            "remove `rename` or `skip`",
        );
        refused(
            quote!(
                struct W {
                    #[from_row(skip, skip)]
                    id: i32,
                }
            ),
            "given twice",
        );
        refused(
            quote!(
                struct W {
                    #[from_row(rename = 1)]
                    id: i32,
                }
            ),
            "expected string literal",
        );
        refused(
            quote!(
                #[from_row(crate = "not a path")]
                struct W {
                    id: i32,
                }
            ),
            "",
        );
    }

    #[test]
    fn names_have_no_place_in_a_tuple_struct() {
        refused(
            quote!(
                struct W(#[from_row(rename = "a")] i32);
            ),
            "by position",
        );
        refused(
            quote!(
                #[from_row(rename_all = "camelCase")]
                struct W(i32);
            ),
            "by position",
        );
    }

    #[test]
    fn every_wrong_field_is_reported_at_once() {
        let errors = errors(quote!(
            struct W {
                #[from_row(a)]
                a: i32,
                #[from_row(b)]
                b: i32,
            }
        ));
        assert_eq!(errors.len(), 2);
    }
}
