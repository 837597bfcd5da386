//! Names of subjects and issuers as text, letter by letter what nginx has of OpenSSL: `X509_NAME_print_ex` with `XN_FLAG_RFC2253`.
//!
//! It promises that the text is printable ASCII, and that two names become the same text only where OpenSSL says the same of both. A value
//! that OpenSSL would not have read, such as a number, is told by its bytes.

use x509_parser::{
    asn1_rs::{Any, Class, Oid, Tag, ToDer},
    x509::X509Name,
};

/// The last attribute first; `+` between those of one set, which are turned round like all others.
pub(crate) fn text(name: &X509Name<'_>) -> String {
    let mut text = String::new();
    let sets: Vec<_> = name.iter_rdn().collect();
    for set in sets.into_iter().rev() {
        let attributes: Vec<_> = set.iter().collect();
        for (i, attribute) in attributes.into_iter().rev().enumerate() {
            if !text.is_empty() {
                text.push(if i == 0 { ',' } else { '+' });
            }
            let kind = dotted(attribute.attr_type());
            let value = attribute.attr_value();
            let (kind, value) = match short_name(&kind) {
                Some(short) => (short, characters(value).unwrap_or_else(|| bytes(value))),
                // Of what kind its value is nobody knows, though it may look like text.
                None => (kind.as_str(), bytes(value)),
            };
            text.push_str(kind);
            text.push('=');
            text.push_str(&value);
        }
    }
    text
}

/// The numbers of a type. asn1-rs takes its first byte for the first two, which goes wrong from 2.40 on, and none beyond 64 bits; those
/// of UUIDs (2.25) have 128.
fn dotted(oid: &Oid<'_>) -> String {
    let mut numbers = Vec::new();
    let mut number = Some(0u128);
    for byte in oid.as_bytes() {
        number = number.and_then(|n| n.checked_mul(128)).map(|n| n | u128::from(byte & 127));
        let Some(whole) = number else { return oid.to_id_string() };
        if byte & 128 == 0 {
            if numbers.is_empty() {
                // X.690, 8.19.4: 40 times the first, which is 0, 1 or 2, and the second.
                let first = (whole / 40).min(2);
                numbers.push(first.to_string());
                numbers.push((whole - 40 * first).to_string());
            } else {
                numbers.push(whole.to_string());
            }
            number = Some(0);
        }
    }
    numbers.join(".")
}

/// The value of an attribute that is text, escaped; `None` for what is none.
fn characters(value: &Any<'_>) -> Option<String> {
    if value.class() != Class::Universal || value.header.is_constructed() {
        return None;
    }
    let data = value.data;
    let text: Option<String> = match value.tag() {
        Tag::Utf8String => str::from_utf8(data).ok().map(str::to_owned),
        // All of them ISO 8859-1, also T61String, as OpenSSL takes it and those who write it.
        Tag::NumericString | Tag::PrintableString | Tag::T61String | Tag::Ia5String => {
            Some(data.iter().copied().map(char::from).collect())
        }
        // UCS-2: halves of a pair are no characters.
        Tag::BmpString => {
            let (pairs, rest) = data.as_chunks();
            let all = pairs.iter().map(|pair| char::from_u32(u16::from_be_bytes(*pair).into()));
            all.collect::<Option<_>>().filter(|_| rest.is_empty())
        }
        Tag::UniversalString => {
            let (fours, rest) = data.as_chunks();
            let all = fours.iter().map(|four| char::from_u32(u32::from_be_bytes(*four)));
            all.collect::<Option<_>>().filter(|_| rest.is_empty())
        }
        _ => None,
    };
    text.map(|text| escape(&text))
}

fn escape(value: &str) -> String {
    let mut text = String::with_capacity(value.len());
    let last = value.len().saturating_sub(1);
    for (i, byte) in value.bytes().enumerate() {
        match byte {
            b',' | b'+' | b'"' | b'\\' | b'<' | b'>' | b';' => text.extend(['\\', char::from(byte)]),
            b' ' if i == 0 || i == last => text.push_str("\\ "),
            // OpenSSL takes one that stands alone for the last character, and leaves it.
            b'#' if i == 0 && i != last => text.push_str("\\#"),
            b' '..=b'~' => text.push(char::from(byte)),
            _ => text.push_str(&format!("\\{byte:02X}")),
        }
    }
    text
}

/// `#` and a value's DER, in hexadecimal digits.
fn bytes(value: &Any<'_>) -> String {
    // It was read from DER, so it can be written again.
    let der = value.to_der_vec().unwrap_or_default();
    std::iter::once("#".to_owned()).chain(der.iter().map(|byte| format!("{byte:02X}"))).collect()
}

/// OpenSSL's name of an attribute's type: all that `openssl list -objects` has where attributes are numbered. Its other objects, such
/// as extensions, stand in no name, and are numbers here.
fn short_name(oid: &str) -> Option<&'static str> {
    Some(match oid {
        "0.9.2342.19200300.100.1.1" => "UID",
        "0.9.2342.19200300.100.1.2" => "textEncodedORAddress",
        "0.9.2342.19200300.100.1.3" => "mail",
        "0.9.2342.19200300.100.1.4" => "info",
        "0.9.2342.19200300.100.1.5" => "favouriteDrink",
        "0.9.2342.19200300.100.1.6" => "roomNumber",
        "0.9.2342.19200300.100.1.7" => "photo",
        "0.9.2342.19200300.100.1.8" => "userClass",
        "0.9.2342.19200300.100.1.9" => "host",
        "0.9.2342.19200300.100.1.10" => "manager",
        "0.9.2342.19200300.100.1.11" => "documentIdentifier",
        "0.9.2342.19200300.100.1.12" => "documentTitle",
        "0.9.2342.19200300.100.1.13" => "documentVersion",
        "0.9.2342.19200300.100.1.14" => "documentAuthor",
        "0.9.2342.19200300.100.1.15" => "documentLocation",
        "0.9.2342.19200300.100.1.20" => "homeTelephoneNumber",
        "0.9.2342.19200300.100.1.21" => "secretary",
        "0.9.2342.19200300.100.1.22" => "otherMailbox",
        "0.9.2342.19200300.100.1.23" => "lastModifiedTime",
        "0.9.2342.19200300.100.1.24" => "lastModifiedBy",
        "0.9.2342.19200300.100.1.25" => "DC",
        "0.9.2342.19200300.100.1.26" => "aRecord",
        "0.9.2342.19200300.100.1.27" => "pilotAttributeType27",
        "0.9.2342.19200300.100.1.28" => "mXRecord",
        "0.9.2342.19200300.100.1.29" => "nSRecord",
        "0.9.2342.19200300.100.1.30" => "sOARecord",
        "0.9.2342.19200300.100.1.31" => "cNAMERecord",
        "0.9.2342.19200300.100.1.37" => "associatedDomain",
        "0.9.2342.19200300.100.1.38" => "associatedName",
        "0.9.2342.19200300.100.1.39" => "homePostalAddress",
        "0.9.2342.19200300.100.1.40" => "personalTitle",
        "0.9.2342.19200300.100.1.41" => "mobileTelephoneNumber",
        "0.9.2342.19200300.100.1.42" => "pagerTelephoneNumber",
        "0.9.2342.19200300.100.1.43" => "friendlyCountryName",
        "0.9.2342.19200300.100.1.44" => "uid",
        "0.9.2342.19200300.100.1.45" => "organizationalStatus",
        "0.9.2342.19200300.100.1.46" => "janetMailbox",
        "0.9.2342.19200300.100.1.47" => "mailPreferenceOption",
        "0.9.2342.19200300.100.1.48" => "buildingName",
        "0.9.2342.19200300.100.1.49" => "dSAQuality",
        "0.9.2342.19200300.100.1.50" => "singleLevelQuality",
        "0.9.2342.19200300.100.1.51" => "subtreeMinimumQuality",
        "0.9.2342.19200300.100.1.52" => "subtreeMaximumQuality",
        "0.9.2342.19200300.100.1.53" => "personalSignature",
        "0.9.2342.19200300.100.1.54" => "dITRedirect",
        "0.9.2342.19200300.100.1.55" => "audio",
        "0.9.2342.19200300.100.1.56" => "documentPublisher",
        "1.2.643.3.131.1.1" => "INN",
        "1.2.643.100.1" => "OGRN",
        "1.2.643.100.3" => "SNILS",
        "1.2.643.100.5" => "OGRNIP",
        "1.2.643.100.111" => "subjectSignTool",
        "1.2.643.100.112" => "issuerSignTool",
        "1.2.643.100.113" => "classSignTool",
        "1.2.643.100.113.1" => "classSignToolKC1",
        "1.2.643.100.113.2" => "classSignToolKC2",
        "1.2.643.100.113.3" => "classSignToolKC3",
        "1.2.643.100.113.4" => "classSignToolKB1",
        "1.2.643.100.113.5" => "classSignToolKB2",
        "1.2.643.100.113.6" => "classSignToolKA1",
        "1.2.840.113549.1.9.1" => "emailAddress",
        "1.2.840.113549.1.9.2" => "unstructuredName",
        "1.2.840.113549.1.9.7" => "challengePassword",
        "1.2.840.113549.1.9.8" => "unstructuredAddress",
        "1.2.840.113549.1.9.20" => "friendlyName",
        "1.3.6.1.4.1.311.17.1" => "CSPName",
        "1.3.6.1.4.1.311.20.2.3" => "msUPN",
        "1.3.6.1.4.1.311.60.2.1.1" => "jurisdictionL",
        "1.3.6.1.4.1.311.60.2.1.2" => "jurisdictionST",
        "1.3.6.1.4.1.311.60.2.1.3" => "jurisdictionC",
        "1.3.6.1.5.5.7.9.1" => "id-pda-dateOfBirth",
        "1.3.6.1.5.5.7.9.2" => "id-pda-placeOfBirth",
        "1.3.6.1.5.5.7.9.3" => "id-pda-gender",
        "1.3.6.1.5.5.7.9.4" => "id-pda-countryOfCitizenship",
        "1.3.6.1.5.5.7.9.5" => "id-pda-countryOfResidence",
        "2.5.4.3" => "CN",
        "2.5.4.4" => "SN",
        "2.5.4.5" => "serialNumber",
        "2.5.4.6" => "C",
        "2.5.4.7" => "L",
        "2.5.4.8" => "ST",
        "2.5.4.9" => "street",
        "2.5.4.10" => "O",
        "2.5.4.11" => "OU",
        "2.5.4.12" => "title",
        "2.5.4.13" => "description",
        "2.5.4.14" => "searchGuide",
        "2.5.4.15" => "businessCategory",
        "2.5.4.16" => "postalAddress",
        "2.5.4.17" => "postalCode",
        "2.5.4.18" => "postOfficeBox",
        "2.5.4.19" => "physicalDeliveryOfficeName",
        "2.5.4.20" => "telephoneNumber",
        "2.5.4.21" => "telexNumber",
        "2.5.4.22" => "teletexTerminalIdentifier",
        "2.5.4.23" => "facsimileTelephoneNumber",
        "2.5.4.24" => "x121Address",
        "2.5.4.25" => "internationaliSDNNumber",
        "2.5.4.26" => "registeredAddress",
        "2.5.4.27" => "destinationIndicator",
        "2.5.4.28" => "preferredDeliveryMethod",
        "2.5.4.29" => "presentationAddress",
        "2.5.4.30" => "supportedApplicationContext",
        "2.5.4.31" => "member",
        "2.5.4.32" => "owner",
        "2.5.4.33" => "roleOccupant",
        "2.5.4.34" => "seeAlso",
        "2.5.4.35" => "userPassword",
        "2.5.4.36" => "userCertificate",
        "2.5.4.37" => "cACertificate",
        "2.5.4.38" => "authorityRevocationList",
        "2.5.4.39" => "certificateRevocationList",
        "2.5.4.40" => "crossCertificatePair",
        "2.5.4.41" => "name",
        "2.5.4.42" => "GN",
        "2.5.4.43" => "initials",
        "2.5.4.44" => "generationQualifier",
        "2.5.4.45" => "x500UniqueIdentifier",
        "2.5.4.46" => "dnQualifier",
        "2.5.4.47" => "enhancedSearchGuide",
        "2.5.4.48" => "protocolInformation",
        "2.5.4.49" => "distinguishedName",
        "2.5.4.50" => "uniqueMember",
        "2.5.4.51" => "houseIdentifier",
        "2.5.4.52" => "supportedAlgorithms",
        "2.5.4.53" => "deltaRevocationList",
        "2.5.4.54" => "dmdName",
        "2.5.4.65" => "pseudonym",
        "2.5.4.72" => "role",
        "2.5.4.97" => "organizationIdentifier",
        "2.5.4.98" => "c3",
        "2.5.4.99" => "n3",
        "2.5.4.100" => "dnsName",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_escaped_as_openssl_does() {
        assert_eq!(escape("Müller, \"A\" <x>"), "M\\C3\\BCller\\, \\\"A\\\" \\<x\\>");
        assert_eq!(escape(" #a "), "\\ #a\\ ");
        assert_eq!(escape("#a"), "\\#a");
        assert_eq!(escape("#"), "#");
        assert_eq!(escape(" "), "\\ ");
        assert_eq!(escape("\n\0\x7f"), "\\0A\\00\\7F");
        assert_eq!(escape(""), "");
    }

    /// Of these OpenSSL refuses the whole certificate, so that it is no model for them: none may pass for another's.
    #[test]
    fn what_openssl_does_not_read_is_told_by_its_bytes() {
        for (tag, data) in [
            (Tag::Utf8String, &b"\xff"[..]),
            (Tag::BmpString, b"abc"),
            (Tag::BmpString, b"\xd8\x3d\xde\x00"),
            (Tag::UniversalString, b"ab"),
            (Tag::UniversalString, b"\0\x11\0\0"),
            (Tag::Integer, b"a"),
            (Tag::VisibleString, b"a"),
        ] {
            assert_eq!(characters(&Any::from_tag_and_data(tag, data)), None, "{tag}");
        }
        assert_eq!(bytes(&Any::from_tag_and_data(Tag::BmpString, b"abc")), "#1E03616263");
        assert_eq!(bytes(&Any::from_tag_and_data(Tag::Utf8String, &[b'a'; 200]))[..9], *"#0C81C861");
    }

    #[test]
    fn numbers_of_types_are_read_from_the_first_on() {
        for (der, text) in [
            (&[0x55, 4, 3][..], "2.5.4.3"),
            (&[0x88, 0x37, 1], "2.999.1"),
            (&[0x78], "2.40"),
            (&[0x2a, 3], "1.2.3"),
            (&[0x09], "0.9"),
        ] {
            assert_eq!(dotted(&Oid::new(der.into())), text);
        }
        let uuid = [&[0x69, 0x83][..], &[0xff; 17], &[0x7f]].concat();
        assert_eq!(dotted(&Oid::new(uuid.into())), format!("2.25.{}", u128::MAX));
    }
}
