"""Storage: where a checkpoint lives – a local folder, HDFS, or S3.

- `places`: what a checkpoint asks of a file system, and from a location to a place there;
- `remote`: places on HDFS and S3, through Hadoop's file systems, which Spark uses too;
- `publish`: to create a small file atomically, once;
- `parquet`: to read and write Parquet files, wherever they are.
"""
