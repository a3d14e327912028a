"""Own tables: CSV, Parquet and data frames, without Python."""
