"""Certificates for servers on loopback: a test authority, and what it issues."""

from __future__ import annotations

from datetime import timedelta
from ipaddress import ip_address
from pathlib import Path
from ssl import PROTOCOL_TLS_SERVER, VERIFY_X509_STRICT, SSLContext, create_default_context

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from tidegate.clock import system_clock

VALID = timedelta(hours=1)
SIGNS_CERTIFICATES = x509.KeyUsage(
    key_cert_sign=True,
    crl_sign=True,
    digital_signature=False,
    content_commitment=False,
    key_encipherment=False,
    data_encipherment=False,
    key_agreement=False,
    encipher_only=False,
    decipher_only=False,
)


class Authority:
    """It stores what it issues in a directory of the test."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name("authority of a test")
        own = self._certificate(self._name, self._key.public_key())
        own = own.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        own = own.add_extension(SIGNS_CERTIFICATES, critical=True)
        self._own = own.sign(self._key, hashes.SHA256()).public_bytes(Encoding.PEM)

    def issue(self, host: str) -> Path:
        """Issue a file with a key and a certificate for this host."""
        key = ec.generate_private_key(ec.SECP256R1())
        names = x509.SubjectAlternativeName([_alternative(host)])
        built = self._certificate(_name(host), key.public_key())
        made = built.add_extension(names, critical=False).sign(self._key, hashes.SHA256())
        secret = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        path = self._home / f"{host}.pem"
        path.write_bytes(secret + made.public_bytes(Encoding.PEM) + self._own)
        return path

    def trust(self) -> SSLContext:
        """A client context that trusts this authority, and no other."""
        return _strict(create_default_context(cadata=self._own.decode()))

    def _certificate(
        self, name: x509.Name, key: ec.EllipticCurvePublicKey
    ) -> x509.CertificateBuilder:
        now = system_clock()
        return (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(self._name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - VALID)
            .not_valid_after(now + VALID)
            # Python 3.13 and newer refuse a certificate without these.
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()),
                critical=False,
            )
        )


def trust_of(issued: Path) -> SSLContext:
    """A client context that trusts the issuer of this file."""
    return _strict(create_default_context(cafile=issued))


def _strict(context: SSLContext) -> SSLContext:
    """As strict on every Python as the default of 3.13."""
    context.verify_flags |= VERIFY_X509_STRICT
    return context


def secured(issued: Path) -> SSLContext:
    """A server context that speaks TLS with this file."""
    context = SSLContext(PROTOCOL_TLS_SERVER)
    context.load_cert_chain(issued)
    return context


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _alternative(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(host))
    except ValueError:
        return x509.DNSName(host)
