terraform import gtm_data_class.example health
