"""Certificates for a test, made with the openssl command line."""

import subprocess

CONFIGURATION = """
[ca]
default_ca = authority
[authority]
database = {name}.index
crlnumber = {name}.crlnumber
default_md = sha256
default_crl_days = 30
"""
KEYS = {"ecdsa": ["ec", "-pkeyopt", "ec_paramgen_curve:P-256"], "rsa": ["rsa:2048"]}


def openssl(folder, *arguments):
    """Runs openssl in a folder; its errors are shown only if it fails."""
    done = subprocess.run(["openssl", *arguments], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, f"openssl {' '.join(arguments)}\n{done.stderr}"


class Authority:
    """An authority with its files in `folder`; all names of files begin with `name`."""

    def __init__(self, folder, name):
        self.folder, self.name = folder, name
        self.file = folder / f"{name}.pem"
        (folder / f"{name}.cnf").write_text(CONFIGURATION.format(name=name))
        (folder / f"{name}.index").touch()
        (folder / f"{name}.crlnumber").write_text("01\n")
        new_key = ["-newkey", *KEYS["ecdsa"], "-nodes", "-keyout", f"{name}.key"]
        openssl(folder, "req", "-x509", *new_key, "-days", "30", "-subj", f"/CN={name}", "-out", f"{name}.pem")

    def issue(self, name, key="ecdsa", subject_names=""):
        """Makes NAME.pem and NAME.key with the common name `name`; returns their paths."""
        new_key = ["-newkey", *KEYS[key], "-nodes", "-keyout", f"{name}.key"]
        openssl(self.folder, "req", *new_key, "-subj", f"/CN={name}", "-out", f"{name}.csr")
        extensions = "basicConstraints=CA:FALSE\n"
        if subject_names:
            extensions += f"subjectAltName={subject_names}\n"
        (self.folder / f"{name}.ext").write_text(extensions)
        by = ["-CA", f"{self.name}.pem", "-CAkey", f"{self.name}.key", "-CAcreateserial", "-days", "30"]
        request = ["-in", f"{name}.csr", "-extfile", f"{name}.ext"]
        openssl(self.folder, "x509", "-req", *request, *by, "-out", f"{name}.pem")
        return self.folder / f"{name}.pem", self.folder / f"{name}.key"

    def revoke(self, certificate):
        """Makes the list of revoked certificates; returns its path."""
        signer = ["-config", f"{self.name}.cnf", "-cert", f"{self.name}.pem", "-keyfile", f"{self.name}.key"]
        openssl(self.folder, "ca", *signer, "-revoke", str(certificate))
        openssl(self.folder, "ca", *signer, "-gencrl", "-out", f"{self.name}.crl")
        return self.folder / f"{self.name}.crl"
