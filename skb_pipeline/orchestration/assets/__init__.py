"""One module per stage; each asset reads its inputs, calls one library function and writes one artefact."""
