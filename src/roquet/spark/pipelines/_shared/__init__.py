"""What several pipelines use: message filters, the size of a job, a page with a chart."""
