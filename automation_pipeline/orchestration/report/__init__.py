"""The report of a day, drawn and filed. pandas, pyarrow and matplotlib are known here alone, and loaded on use."""
